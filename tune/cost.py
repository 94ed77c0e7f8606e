"""What a forward costs on this machine: the curve that turns replayed rounds into seconds.

Fitted to a few live runs: a run's seconds are the sum of c(copies) over its forwards, and of
d(budget) over its drafted rounds where a learned drafter works. Both are piecewise linear, and go
on beyond their last knot as they rise before it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from pydantic import BaseModel, ConfigDict

from decoders.options import DecodeOptions
from tune.counts import DRAFTING_KINDS

KNOTS = (1, 2, 5, 9, 17, 33)
"""Copies at which c is fitted."""
CHAIN_BUDGETS = (0, 1, 4, 8, 16, 32)
DRAFTER_BUDGETS = (2, 8, 32)
"""Budgets at which d is fitted."""
TOKENS = 32
"""Length of a measured run."""


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
        total = self.forward_seconds(rounds)
        if options.drafts and options.method in self.drafter:
            assert options.budget != "auto", "replay takes a number"
            curve = self.drafter[options.method]
            one = float(along([options.budget], self.drafter_budgets, curve)[0])
            total += one * _num_drafted(rounds)
        return total

    def forward_seconds(self, rounds: Sequence[tuple[str, int]]) -> float:
        """Of the target alone."""
        return float(along(copies_in(rounds), self.knots, self.forward).sum())


def along(places: Sequence[int], knots: Sequence[int], values: Sequence[float]) -> np.ndarray:
    """The piecewise linear curve through ``values`` at ``knots``, whose last piece goes on."""
    slope = (values[-1] - values[-2]) / (knots[-1] - knots[-2])
    beyond = np.maximum(np.array(places) - knots[-1], 0)
    return np.interp(places, knots, values) + slope * beyond


def copies_in(rounds: Sequence[tuple[str, int]]) -> list[int]:
    """Block copies in each forward of a request: the root, its drafts, and the full block before,
    which the ``open`` of every block but the first one stores.

    Where blocks begin with drafts (``draft_refresh``, which is neither replayed nor fitted), a
    ``verify`` stores too, and what it stores is not counted here.
    """
    found, opened = [], False
    for kind, drafts in rounds:
        found.append(1 + drafts + (kind == "open" and opened))
        opened |= kind == "open"
    return found


def measure_cost(
    group: Generator, row: Mapping[str, Any], shared: DecodeOptions, methods: Sequence[str]
) -> CostCurve:
    """Fit the curve to short runs of ``row`` on a live group, one request at a time."""
    short = {
        "batch_size": 1,
        "temperature": 0.0,
        "ignore_stop": True,
        "max_new_tokens": min(TOKENS, shared.max_new_tokens),
    }

    def run(method: str, budget: int) -> Run:
        values = shared.model_dump() | short | {"method": method, "budget": budget}
        return _run(group, row, DecodeOptions.lenient(**(values | {"gamma": 0.0, "cap": 1.0})))

    run("chain", 1)  # warm up
    curve = CostCurve(forward=fit_forward([run("chain", budget) for budget in CHAIN_BUDGETS]))
    drafter: dict[str, tuple[float, ...]] = {}
    for method in methods:
        if method != "chain":
            runs = [run(method, budget) for budget in DRAFTER_BUDGETS]
            drafter[method] = fit_drafter(runs, curve)
    return curve.model_copy(update={"drafter": drafter})


Run = tuple[list[tuple[str, int]], float]
"""The rounds of a request and its seconds."""


def _run(group: Generator, row: Mapping[str, Any], options: DecodeOptions) -> Run:
    """The faster of two: what else the machine does only ever adds."""
    found = [group.generate([row], options, trace=True)[0] for _ in range(2)]
    fastest = min(found, key=lambda each: each["seconds"])
    rounds = [(r["kind"], r["drafts"]) for r in fastest["rounds"]]
    return rounds, float(fastest["seconds"])


def fit_forward(runs: Sequence[Run]) -> tuple[float, ...]:
    """Least squares of c at the knots; more copies never cost less."""
    design = np.array([_shares(copies_in(rounds)) for rounds, _ in runs])
    seconds = np.array([s for _, s in runs])
    fitted = np.linalg.lstsq(design, seconds, rcond=None)[0]
    floor = seconds.min() / max(len(rounds) for rounds, _ in runs) / 10
    return tuple(np.maximum.accumulate(np.maximum(fitted, floor)).tolist())


def _shares(copies: Sequence[int]) -> np.ndarray:
    """How much each knot weighs in the sum of c over ``copies``."""
    return np.array([along(copies, KNOTS, row).sum() for row in np.eye(len(KNOTS)).tolist()])


def fit_drafter(runs: Sequence[Run], curve: CostCurve) -> tuple[float, ...]:
    """What a drafted round takes beyond its forward, run by run; never less at a larger budget."""
    found = []
    for rounds, seconds in runs:
        beyond = seconds - curve.forward_seconds(rounds)
        found.append(max(0.0, beyond) / max(1, _num_drafted(rounds)))
    return tuple(np.maximum.accumulate(found).tolist())


def _num_drafted(rounds: Sequence[tuple[str, int]]) -> int:
    return sum(kind in DRAFTING_KINDS for kind, _ in rounds)
