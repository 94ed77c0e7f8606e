"""The same forwards on two tensor-parallel ranks: NCCL between GPUs, gloo between processes."""

import multiprocessing
from datetime import timedelta
from multiprocessing.queues import Queue
from typing import Any

import torch

from benchmarks.gpu.floors import Speeds
from benchmarks.gpu.forwards import measure_forwards, modes
from benchmarks.gpu.plan import GpuPlan
from benchmarks.gpu.shapes import random_model
from benchmarks.gpu.timing import Row
from models.leading import LeadingTarget, follow
from models.opening import open_target
from models.ranks import join_ranks, leave_ranks, open_store, reach_store

RANKS = 2
PATIENCE = timedelta(minutes=5)
"""Until both have made their weights."""


def enough_devices(plan: GpuPlan) -> bool:
    """Whether every rank has a GPU of its own, where GPUs are used."""
    return not plan.on_gpu or torch.cuda.device_count() >= RANKS


def measure_ranks(plan: GpuPlan, speeds: Speeds) -> list[Row]:
    """Rows of rank 0 in every mode. Floors are those of one device with half the weights."""
    context = multiprocessing.get_context("spawn")
    store, found = open_store(), context.Queue()
    halved = Speeds(RANKS * speeds.bytes_per_second, RANKS * speeds.flops_per_second)
    processes = [
        context.Process(target=_run_rank, args=(plan, halved, rank, store.port, found), daemon=True)
        for rank in range(RANKS)
    ]
    for process in processes:
        process.start()
    rows: list[Row] = []
    for _ in modes(plan):
        rows += _answer(processes, found)
    for process in processes:
        process.join()
    return rows


def _answer(processes: list[Any], found: "Queue[list[Row]]") -> list[Row]:
    """What rank 0 measured in one mode; an error when a rank ends before."""
    from queue import Empty

    while True:
        try:
            return found.get(timeout=1)
        except Empty:
            if any(process.exitcode for process in processes):
                raise RuntimeError("a rank ended: its error stands above") from None


def _run_rank(
    plan: GpuPlan, speeds: Speeds, rank: int, port: int, found: "Queue[list[Row]]"
) -> None:
    if plan.on_gpu:
        torch.cuda.set_device(rank)
        plan = plan.model_copy(update={"device": f"cuda:{rank}"})
    else:
        torch.set_num_threads(1)
    ranks = join_ranks(reach_store(port), rank, RANKS, plan.device, PATIENCE)
    for mode in modes(plan):
        target = open_target(random_model(plan, ranks), ranks, mode)
        if ranks.leads:
            leading = LeadingTarget(target, ranks)
            found.put(measure_forwards(leading, mode, plan, speeds))
            leading.stop()
        else:
            follow(target, ranks)
        del target
    leave_ranks()
