"""Seconds of some work on a device: warm-up, synchronise, repeat, median and quartiles."""

from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch

from benchmarks.gpu.plan import GpuPlan
from benchmarks.paired import quartiles

Row = dict[str, Any]


def synchronize(device: torch.device) -> None:
    """Wait for the device, where it is one to wait for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed(work: Callable[[], object], plan: GpuPlan) -> dict[str, float]:
    """Quartiles of the wall time of ``work``, from an idle device until it is idle again."""
    device = torch.device(plan.device)
    for _ in range(plan.warm_ups):
        work()
    seconds = []
    for _ in range(plan.repeats):
        synchronize(device)
        started = perf_counter()
        work()
        synchronize(device)
        seconds.append(perf_counter() - started)
    return quartiles(seconds)
