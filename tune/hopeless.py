"""Which live trials need not go on: those that cannot win any more, with 95 % confidence at every
look (after several looks it is a little less)."""

from collections.abc import Sequence

from decoders.options import DecodeOptions
from tune.champion import choose_champion
from tune.config import SweepConfig
from tune.row import Spread, TrialRow, over_standard

TIMED = ("speed", "tokens_per_second")
"""Objectives that the pairs of a live trial tell about; other ones are known before."""


def best_so_far(
    rows: Sequence[TrialRow], reference_key: str, config: SweepConfig
) -> TrialRow | None:
    """The drafting trial that would win now."""
    best = choose_champion(rows, reference_key, config.champion, config.objectives)
    return best if best is not None and best.options.drafts else None


def why_hopeless(
    spread: Spread, baseline: TrialRow, best: TrialRow | None, reference: DecodeOptions
) -> str | None:
    """Why a trial whose pairs with ``baseline`` so far gave ``spread`` cannot win; none while it
    may: its interval reaches standard decoding (``reference``) and the lower end of the best one's.
    """
    over = over_standard(spread, baseline.speed_to(reference))
    if spread.interval is None or over is None:
        return None
    scale = baseline.speed_reference or 0.0
    told = f"{scale * spread.median:.2f} [{over[0]:.2f}, {over[1]:.2f}]"
    told += " of standard decoding's tokens/s"
    if over[1] < 1:
        return f"{told}: slower than it"
    if best is None or best.speed is None or best.speed.interval is None:
        return None
    high, floor = over[1], (best.speed_interval or (0.0, 0.0))[0]
    if best.rule == baseline.options:
        # Against the same run: what is not known of its speed-up concerns both of them alike.
        high, floor = scale * spread.interval[1], scale * best.speed.interval[0]
    return f"{told}: below the best one's {floor:.2f}" if high < floor else None
