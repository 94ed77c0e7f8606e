"""What a forward of one copy may take, before anything is started: for plans."""

import time
from dataclasses import dataclass
from pathlib import Path

import torch

from models.config import TargetConfig
from models.spec import TargetSpec
from tune.config import SweepConfig
from tune.folder import COST, SweepFolder

TIMED_SECONDS = 0.05
OVERHEAD_SECONDS = 0.002
"""Of a forward of a small target: everything but its matrix products."""
UNKNOWN_GPU_BYTES = 1e12
"""Bytes a second that a GPU which is not here is taken to read."""


@dataclass(frozen=True)
class Estimate:
    """Seconds of a forward, and where they are from."""

    seconds: float
    source: str


def estimate_forward(config: SweepConfig, spec: TargetSpec, runs: Path) -> Estimate:
    """From the latest sweep of the same target on the same device, else from a quick timing."""
    return _recorded(config.target, runs) or _timed(config.target, spec)


def _recorded(target: TargetConfig, runs: Path) -> Estimate | None:
    found = sorted(runs.glob(f"*/{COST}"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for path in found:
        folder = SweepFolder(path.parent)
        try:
            cost, measured = folder.cost(), folder.config.target
        except (OSError, ValueError):  # damaged, or of another version: not this sweep's concern
            continue
        if cost is not None and measured == target:
            return Estimate(cost.forward[0], f"the costs that {path.parent} measured")
    return None


def _timed(target: TargetConfig, spec: TargetSpec) -> Estimate:
    """A small forward is bound by its products on a CPU, by reading the weights on a GPU."""
    if target.device == "cpu":
        rate = _products_per_second(spec)
        seconds = OVERHEAD_SECONDS + spec.num_parameters * spec.block_size / rate / target.tp
        return Estimate(seconds, "a quick timing of this machine's matrix products")
    size = torch.finfo(getattr(torch, target.dtype)).bits // 8
    weights = spec.num_parameters * size / target.tp
    if not torch.cuda.is_available():
        return Estimate(weights / UNKNOWN_GPU_BYTES, "a guess, since there is no GPU here")
    return Estimate(
        weights / _bytes_per_second(target.device), "a quick timing of this GPU's memory"
    )


def _products_per_second(spec: TargetSpec) -> float:
    """Multiplications (each with its addition) that this process does in a second."""
    x = torch.randn(spec.block_size, spec.hidden_size)
    weight = torch.randn(spec.hidden_size, spec.intermediate_size)
    torch.matmul(x, weight)
    started, count = time.perf_counter(), 0
    while time.perf_counter() - started < TIMED_SECONDS:
        torch.matmul(x, weight)
        count += 1
    return count * x.shape[0] * weight.numel() / (time.perf_counter() - started)


def _bytes_per_second(device: str) -> float:
    """What the GPU reads in a second."""
    block = torch.empty(2**28, dtype=torch.uint8, device=device)
    block.sum()
    torch.cuda.synchronize(device)
    started = time.perf_counter()
    for _ in range(4):
        block.clone()
    torch.cuda.synchronize(device)
    return 4 * 2 * block.numel() / (time.perf_counter() - started)
