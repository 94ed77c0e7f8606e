"""What the driver's machine is doing while a run lasts, as MLflow's system metrics.

Read from ``/proc`` and, where it is installed, ``nvidia-smi``: a sample costs milliseconds.
"""

import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cluster.tracking.store import Tracking

EVERY_SECONDS = 10.0
_MEGABYTE = 1e6
_GPU_QUERY = "index,utilization.gpu,memory.used,memory.total"


@contextmanager
def machine_metrics(
    tracking: Tracking, run_id: str, every: float = EVERY_SECONDS
) -> Iterator[None]:
    """Log a sample at once and then ``every`` so many seconds, from a thread, while the block
    lasts; nothing where there is no ``/proc``. A store that is away misses samples."""
    ended = threading.Event()

    def watch() -> None:
        before, step = processor_ticks(), 0
        while not ended.wait(every if step else min(every, 1.0)):
            now = processor_ticks()
            found = sample(before, now)
            with suppress(Exception):  # whatever the store's client raises; the rows tell of it
                tracking.log(run_id, {}, found, {}, step=step)
            before, step = now, step + 1

    watching = threading.Thread(target=watch, daemon=True)
    if Path("/proc/stat").exists():
        watching.start()
    try:
        yield
    finally:
        ended.set()
        if watching.is_alive():
            watching.join()


def sample(before: tuple[int, int], now: tuple[int, int]) -> dict[str, float]:
    """Processor load between two readings; memory and GPUs as they are now."""
    (busy, total), (busy_before, total_before) = now, before
    share = (busy - busy_before) / max(1, total - total_before)
    return {"system/cpu_utilization_percentage": 100 * share, **memory(), **gpus(_ask_gpus())}


def processor_ticks() -> tuple[int, int]:
    """(busy, all) ticks of all processors since the machine started."""
    file = Path("/proc/stat")
    if not file.exists():
        return 0, 0
    ticks = [int(word) for word in file.read_text().splitlines()[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    return sum(ticks) - idle, sum(ticks)


def memory() -> dict[str, float]:
    """Memory in use, of the machine and of this process."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    sizes = {
        name: int(rest.split()[0]) * 1024 for name, _, rest in (s.partition(":") for s in lines)
    }
    used = sizes["MemTotal"] - sizes["MemAvailable"]
    status = Path("/proc/self/status").read_text().partition("VmRSS:")[2]
    return {
        "system/system_memory_usage_megabytes": used / _MEGABYTE,
        "system/system_memory_usage_percentage": 100 * used / sizes["MemTotal"],
        "system/driver_memory_megabytes": int(status.split()[0]) * 1024 / _MEGABYTE,
    }


def _ask_gpus() -> str:
    if shutil.which("nvidia-smi") is None:
        return ""
    command = ["nvidia-smi", f"--query-gpu={_GPU_QUERY}", "--format=csv,noheader,nounits"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5).stdout
    except (OSError, subprocess.TimeoutExpired):  # a busy driver misses one sample
        return ""


def gpus(answer: str) -> dict[str, float]:
    """The numbers of ``nvidia-smi``, a line for each GPU; what it does not know is left out, and so
    is what it says in words where it finds no driver."""
    found: dict[str, float] = {}
    for line in answer.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) != _GPU_QUERY.count(",") + 1 or not parts[0].isdigit():
            continue
        index, load, used, total = parts
        names = {
            f"system/gpu_{index}_utilization_percentage": load,
            f"system/gpu_{index}_memory_usage_megabytes": used,
        }
        found |= {name: float(text) for name, text in names.items() if _is_number(text)}
        if _is_number(used) and _is_number(total) and float(total) > 0:
            share = 100 * float(used) / float(total)
            found[f"system/gpu_{index}_memory_usage_percentage"] = share
    return found


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()
