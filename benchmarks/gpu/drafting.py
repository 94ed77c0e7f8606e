"""What a round's drafts cost beside one forward of the large shape."""

from collections.abc import Sequence
from itertools import islice
from time import perf_counter

import torch

from benchmarks.gpu.plan import GpuPlan
from benchmarks.gpu.timing import Row, synchronize
from benchmarks.gpu.traces import Recorded
from benchmarks.paired import quartiles
from decoders.options import DecodeOptions
from decoders.proposers.base import Proposer, View

MOST_DRAFTING = 0.1
"""Goal: of a forward over one copy."""


def measure_drafting(
    recorded: Recorded, proposers: dict[str, Proposer], plan: GpuPlan, forward_seconds: float
) -> list[Row]:
    """A row for each proposer (by a name that says where it runs), cap and budget."""
    rows: list[Row] = []
    for name, proposer in proposers.items():
        method = name.split()[0]
        for cap in plan.caps:
            for budget in plan.budgets:
                options = DecodeOptions.lenient(method=method, cap=cap, budget=budget)
                roots = islice(recorded.roots(cap), plan.warm_ups + plan.draft_roots)
                seconds = propose_seconds(proposer, [root.view(options) for root in roots], plan)
                share = seconds["median"] / forward_seconds
                rows.append(
                    {
                        "proposer": name,
                        "cap": cap,
                        "budget": budget,
                        "seconds": seconds,
                        "of_a_forward": share,
                        "goal": MOST_DRAFTING,
                        "met": share <= MOST_DRAFTING,
                    }
                )
    return rows


def propose_seconds(proposer: Proposer, views: Sequence[View], plan: GpuPlan) -> dict[str, float]:
    """Quartiles over the views, one at a time, as a single request drafts; the first
    ``warm_ups`` are not counted."""
    device, seconds = torch.device(plan.device), []
    for view in views:
        synchronize(device)
        started = perf_counter()
        proposer.propose([view])
        seconds.append(perf_counter() - started)
    return quartiles(seconds[plan.warm_ups :] or seconds)
