"""One forward by copies and prefix against its floors, plain and with graphs."""

from collections.abc import Callable, Sequence

import torch

from benchmarks.gpu.floors import Speeds, floors_of
from benchmarks.gpu.plan import GpuPlan
from benchmarks.gpu.shapes import aligned, half_filled
from benchmarks.gpu.timing import Row, timed
from decoders.cost_curve import CostCurve, Timed
from models.config import Forwards
from models.spec import TargetSpec

ONE_COPY = 1.25
"""Goal: one copy over the memory floor."""
FEW_POSITIONS, FEW = 128, 1.15
"""Goal: up to so many positions over one copy behind the same prefix."""
MANY = 1.3
"""Goal: more positions over the larger floor."""


def modes(plan: GpuPlan) -> tuple[Forwards, ...]:
    """How forwards run; the last one is what a decode takes there, or would on a GPU."""
    return ("plain", "buckets", "graphs") if plan.on_gpu else ("plain", "buckets")


def measure_forwards(
    target: Timed,
    mode: str,
    plan: GpuPlan,
    speeds: Speeds,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> list[Row]:
    """A row for every prefix and number of copies."""
    rows: list[Row] = []
    target.open_slot(0, plan.prefixes[-1] + 2 * plan.block_size)
    length = 0
    for prefix in plan.prefixes:
        prefix = aligned(plan, prefix)
        target.prefill(0, (1,) * (prefix - length))
        length = prefix
        one = 0.0
        for copies in plan.copies:
            batch = half_filled(plan, copies)
            seconds = timed(lambda batch=batch: target.forward(batch), plan)
            one = one or seconds["median"]
            facts = {"mode": mode, "prefix": prefix, "copies": copies, "rows": len(batch.rows)}
            rows.append(facts | judged(plan, plan.spec, speeds, facts, seconds, one))
            report(len(rows), len(plan.prefixes) * len(plan.copies))
    target.close_slot(0)
    return rows


def judged(
    plan: GpuPlan,
    spec: TargetSpec,
    speeds: Speeds,
    facts: Row,
    seconds: dict[str, float],
    one: float,
) -> Row:
    """Seconds beside the floors, and the goal that this size has."""
    copies, prefix = facts["copies"], facts["prefix"]
    floors = floors_of(spec, speeds, copies, facts["rows"], prefix, plan.dtype)
    positions, median = copies * spec.block_size, seconds["median"]
    if copies == 1:
        ratio, goal, to = median / floors.memory, ONE_COPY, "memory floor"
    elif positions <= FEW_POSITIONS:
        ratio, goal, to = median / one, FEW, "one copy"
    else:
        ratio, goal, to = median / floors.larger, MANY, "larger floor"
    return {
        "positions": positions,
        "seconds": seconds,
        "memory_floor": floors.memory,
        "compute_floor": floors.compute,
        "ratio": ratio,
        "ratio_to": to,
        "goal": goal,
        "met": ratio <= goal,
    }


def one_copy_seconds(rows: Sequence[Row], mode: str, prefix: int) -> float:
    """The median forward over one copy behind the prefix that is nearest."""
    own = [row for row in rows if row["mode"] == mode and row["copies"] == 1]
    return min(own, key=lambda row: abs(row["prefix"] - prefix))["seconds"]["median"]


def curve_of(rows: Sequence[Row], mode: str) -> CostCurve:
    """What was measured in one mode as a cost curve; neither more copies nor a longer prefix
    count as cheaper."""
    own = [row for row in rows if row["mode"] == mode]
    prefixes = tuple(dict.fromkeys(row["prefix"] for row in own))
    knots = tuple(dict.fromkeys(row["copies"] for row in own))
    medians = torch.tensor([row["seconds"]["median"] for row in own], dtype=torch.float64)
    grid = medians.view(len(prefixes), len(knots)).cummax(dim=1).values.cummax(dim=0).values
    seconds = tuple(map(tuple, grid.tolist()))
    return CostCurve(knots=knots, prefixes=prefixes, seconds=seconds)
