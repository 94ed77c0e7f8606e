"""Which live trials need not go on: those that cannot win any more, with 95 % confidence."""

from collections.abc import Sequence

from tune.champion import choose_champion
from tune.config import SweepConfig
from tune.row import Spread, TrialRow

TIMED = ("speed", "tokens_per_second")
"""Objectives that the pairs of a live trial tell about; other ones are known before."""


def best_so_far(
    rows: Sequence[TrialRow], reference_key: str, config: SweepConfig
) -> TrialRow | None:
    """The drafting trial that would win now."""
    best = choose_champion(rows, reference_key, config.champion, config.objectives)
    return best if best is not None and best.options.drafts else None


def why_hopeless(spread: Spread, baseline: TrialRow, best: TrialRow | None) -> str | None:
    """Why a trial whose pairs with ``baseline`` so far gave ``spread`` cannot win; none while it
    may: its interval reaches standard decoding and the lower end of the best one's."""
    if spread.interval is None:
        return None
    scale = baseline.speed_reference or 0.0
    low, high = (scale * end for end in spread.interval)
    told = f"{scale * spread.median:.2f} [{low:.2f}, {high:.2f}] of standard decoding's tokens/s"
    if high < 1:
        return f"{told}: slower than it"
    floor = best.speed_interval[0] if best is not None and best.speed_interval else 0.0
    return f"{told}: below the best one's {floor:.2f}" if high < floor else None
