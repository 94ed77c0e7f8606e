"""Tokens a second of every method, had the replayed rounds been forwards of the large shape.

The rounds are those of the bundled target's traces (exact, but of that target: another one accepts
more or less); the price of a forward is what was measured here, or an assumption in words.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.gpu.plan import GpuPlan
from benchmarks.gpu.timing import Row
from benchmarks.gpu.traces import Recorded
from benchmarks.spot.cells import Drafting
from benchmarks.spot.config import WhatIfConfig
from benchmarks.spot.replaying import draft_free_tally, replay_tally
from benchmarks.spot.tally import Tally
from decoders.cost_curve import CostCurve


@dataclass(frozen=True)
class Prices:
    """Of forwards and of a round's drafts (by method, cap and budget; 0 where not measured)."""

    forward: CostCurve
    drafting: Mapping[tuple[str, float, int], float]
    words: str
    """How the prices came about."""


def stated_prices() -> Prices:
    """Without a measurement: the assumption of ``report spot``."""
    assumed = WhatIfConfig()
    words = f"{assumed.words}; the unit of time is a forward over one copy"
    return Prices(assumed.curve, {}, words)


def measure_what_if(
    recorded: Recorded, prices: Prices, plan: GpuPlan, report: Callable[[int, int], None]
) -> list[Row]:
    """A row for each cap, method and budget; speed is over draft-free decoding of that cap."""
    rows: list[Row] = []
    total = len(plan.caps) * (1 + len(plan.methods) * len(plan.budgets))
    for cap, traces in recorded.by_cap.items():
        tokens = sum(len(trace.token_ids) for trace in traces)
        base = draft_free_tally(traces)
        free = base.cost(prices.forward.at)

        def row(method: str, budget: int | None, own: Tally, cap: float = cap) -> Row:
            asked = own.asked * prices.drafting.get((method, cap, budget or 0), 0.0)
            seconds = own.cost(prices.forward.at) + asked
            return {
                "cap": cap,
                "method": method,
                "budget": budget,
                "nfe": own.nfe,
                "nfe_factor": base.nfe / own.nfe,  # noqa: B023 (called in the same turn)
                "tokens_per_time": tokens / seconds,  # noqa: B023
                "speed": free / seconds,  # noqa: B023
                "certificate": "replayed",
            }

        rows.append(row("standard", None, base))
        for method in plan.methods:
            for budget in plan.budgets:
                drafting = Drafting(method, budget)
                proposer = recorded.engine.proposer(method)
                assert proposer is not None, "the plan names methods with proposers"
                own = replay_tally(traces, drafting, proposer)
                rows.append(row(method, budget, own))
                report(len(rows), total)
    return rows
