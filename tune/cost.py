"""What a forward costs on this machine: the curve that turns replayed rounds into seconds.

Fitted to a few live runs: a run's seconds are the sum of c(copies) over its forwards, and of
d(budget) over its drafted rounds where a learned drafter works. Both are piecewise linear.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from pydantic import BaseModel, ConfigDict

from decoders.options import DecodeOptions

KNOTS = (1, 2, 5, 9, 17, 33)
"""Copies at which c is fitted."""
CHAIN_BUDGETS = (0, 1, 4, 8, 16, 32)
DRAFTER_BUDGETS = (2, 8, 32)
"""Budgets at which d is fitted."""


class Generator(Protocol):
    """What is used of a target group."""

    def generate(
        self, rows: Sequence[Mapping[str, Any]], options: DecodeOptions, trace: bool = False
    ) -> list[dict[str, Any]]: ...


class CostCurve(BaseModel):
    """Seconds of a forward over ``knots`` copies, and of one drafted round by method."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    knots: tuple[int, ...] = KNOTS
    forward: tuple[float, ...]
    drafter_budgets: tuple[int, ...] = DRAFTER_BUDGETS
    drafter: dict[str, tuple[float, ...]] = {}

    def seconds(self, rounds: Sequence[tuple[str, int]], options: DecodeOptions) -> float:
        """Estimated seconds of ``rounds``, given as (kind, drafts)."""
        copies = [copies_of(kind, drafts) for kind, drafts in rounds]
        total = float(np.interp(copies, self.knots, self.forward).sum())
        if options.method in self.drafter:
            curve = self.drafter[options.method]
            one = float(np.interp(options.budget, self.drafter_budgets, curve))
            total += one * sum(kind in ("verify", "step") for kind, _ in rounds)
        return total


def copies_of(kind: str, drafts: int) -> int:
    """Block copies in a forward: an ``open`` mostly stores the block before it."""
    return 2 if kind == "open" else 1 + drafts


def measure_cost(
    group: Generator, row: Mapping[str, Any], shared: DecodeOptions, methods: Sequence[str]
) -> CostCurve:
    """Fit the curve to runs of ``row`` on a live group, one request at a time."""
    alone = {"batch_size": 1, "temperature": 0.0, "cap": 1.0}
    group.generate([row], shared.model_copy(update=alone))  # warm up
    runs = []
    for budget in CHAIN_BUDGETS:
        options = DecodeOptions.lenient(
            **(shared.model_dump() | alone | {"method": "chain", "budget": budget})
        )
        runs += [_run(group, row, options), _run(group, row, options)]
    curve = CostCurve(forward=fit_forward(runs))
    drafter: dict[str, tuple[float, ...]] = {}
    for method in methods:
        if method != "chain":
            drafter[method] = _measure_drafter(group, row, shared, alone, method, curve)
    return curve.model_copy(update={"drafter": drafter})


Run = tuple[list[tuple[str, int]], float]
"""The rounds of a request and its seconds."""


def _run(group: Generator, row: Mapping[str, Any], options: DecodeOptions) -> Run:
    found = group.generate([row], options, trace=True)[0]
    rounds = [(r["kind"], r["drafts"]) for r in found["rounds"]]
    return rounds, float(found["seconds"])


def fit_forward(runs: Sequence[Run]) -> tuple[float, ...]:
    """Least squares of c at the knots; more copies never cost less."""
    design = np.array([_shares([copies_of(*r) for r in rounds]) for rounds, _ in runs])
    seconds = np.array([s for _, s in runs])
    fitted = np.linalg.lstsq(design, seconds, rcond=None)[0]
    floor = seconds.min() / max(len(rounds) for rounds, _ in runs) / 10
    return tuple(np.maximum.accumulate(np.maximum(fitted, floor)).tolist())


def _shares(copies: Sequence[int]) -> np.ndarray:
    """How much each knot weighs in the sum of c over ``copies``."""
    return np.array([np.interp(copies, KNOTS, row).sum() for row in np.eye(len(KNOTS))])


def _measure_drafter(
    group: Generator,
    row: Mapping[str, Any],
    shared: DecodeOptions,
    alone: Mapping[str, Any],
    method: str,
    curve: CostCurve,
) -> tuple[float, ...]:
    """What a drafted round takes beyond its forward, at each budget; never less at a larger one."""
    found = []
    for budget in DRAFTER_BUDGETS:
        options = DecodeOptions.lenient(
            **(shared.model_dump() | alone | {"method": method, "budget": budget, "gamma": 0.0})
        )
        rounds, seconds = _run(group, row, options)
        drafted = sum(kind in ("verify", "step") for kind, _ in rounds)
        found.append(max(0.0, seconds - curve.seconds(rounds, options)) / max(1, drafted))
    return tuple(np.maximum.accumulate(found).tolist())
