"""Peak memory of this process: of the device where the target lies, else resident memory."""

import resource
import sys
from pathlib import Path

import torch

_CLEAR = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")
_RESET_PEAK = "5"
"""What Linux takes in ``clear_refs`` to start the peak of resident memory anew (proc(5))."""


def reset_peak_memory(device: str) -> None:
    """Start the peak anew, where the system can; elsewhere it stays the process's own."""
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats(device)
    elif _CLEAR.exists():
        _CLEAR.write_text(_RESET_PEAK)


def peak_memory(device: str) -> int:
    """Bytes at the peak since the last reset."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated(device)
    if _STATUS.exists():
        lines = _STATUS.read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
