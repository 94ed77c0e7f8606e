"""What a sweep looks for, as numbers of which more is better."""

from collections.abc import Sequence

from tune.config import Objective
from tune.row import TrialRow

NEVER = 1e9
"""Seconds that stand for an answer which never came; search algorithms refuse infinity."""


def value_of(row: TrialRow, objective: Objective) -> float:
    """How good a row is in one respect; nothing at all is worth least."""
    if objective == "latency":
        return -(NEVER if row.latency_p95 is None else row.latency_p95)
    found = {
        "speed": row.speed_reference,
        "tokens_per_second": row.tokens_per_second,
        "nfe": row.nfe_factor_reference,
        "accuracy": row.accuracy,
    }[objective]
    return found or 0.0


def values_of(row: TrialRow, objectives: Sequence[Objective]) -> dict[str, float]:
    """What the search maximises."""
    return {name: value_of(row, name) for name in objectives}


def preference(row: TrialRow, objectives: Sequence[Objective]) -> tuple[float, ...]:
    """The larger of two is the better row: by the first objective, then by the next ones, in the
    end by speed."""
    return tuple(value_of(row, name) for name in (*objectives, "speed"))
