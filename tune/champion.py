"""Who wins: the fastest live trial that is exact and no worse than standard decoding."""

from collections.abc import Sequence

from decoders.options import DecodeOptions
from tasks.intervals import paired_interval
from tune.config import ChampionPolicy
from tune.row import Fidelity, TrialRow


def choose_champion(
    rows: Sequence[TrialRow], reference_key: str, policy: ChampionPolicy
) -> TrialRow | None:
    """The winner among ``rows``, or none while the reference is not measured."""
    live = [row for row in rows if row.fidelity == "live" and row.done]
    reference = next((row for row in live if row.key == reference_key), None)
    if reference is None:
        return None
    allowed = [row for row in live if may_win(row, rows, reference, policy)]
    return max(allowed, key=lambda row: row.speed_reference or 0.0, default=None)


def may_win(
    row: TrialRow, rows: Sequence[TrialRow], reference: TrialRow, policy: ChampionPolicy
) -> bool:
    """Whether certificate and accuracy allow this row to win.

    An exact row must not be below the reference: neither on its own replies, nor on the recorded
    ones of its rule. Another one may only when the policy bounds its loss, and keeps it.
    """
    if row.certificate == "exact":
        ours, theirs = _recorded(rows, row), _recorded(rows, reference)
        return not_below(row, reference) and (not ours or not theirs or not_below(ours, theirs))
    if not policy.approximate or policy.max_loss is None:
        return False
    return difference(row, reference)[0] >= -policy.max_loss


def not_below(row: TrialRow, reference: TrialRow) -> bool:
    """Whether the paired 95 % interval of the accuracies' difference reaches zero."""
    return difference(row, reference)[1] >= 0


def difference(row: TrialRow, reference: TrialRow) -> tuple[float, float]:
    """Paired 95 % interval of the difference in accuracy on the problems of both."""
    common = [id_ for id_ in row.correct if id_ in reference.correct]
    return paired_interval(
        [row.correct[id_] for id_ in common], [reference.correct[id_] for id_ in common]
    )


def _recorded(rows: Sequence[TrialRow], row: TrialRow) -> TrialRow | None:
    """The draft-free row of the same rule over all recorded problems."""
    return find_baseline(rows, "replay", row.rule)


def find_baseline(
    rows: Sequence[TrialRow], fidelity: Fidelity, rule: DecodeOptions
) -> TrialRow | None:
    """The draft-free row of a rule."""
    for row in rows:
        if row.fidelity == fidelity and row.done and row.is_baseline and row.rule == rule:
            return row
    return None


def choose_live(rows: Sequence[TrialRow], reference: TrialRow, count: int) -> list[TrialRow]:
    """The replayed settings to try on the target: the fastest by estimate, the best of each method
    and rule first, then the best in NFE, then whatever is next; those that cannot win stay out."""
    drafted = [row for row in rows if row.fidelity == "replay" and row.done and row.options.drafts]
    able = [row for row in drafted if not_below(row, reference)]
    ranked = sorted(able, key=lambda row: (-(row.speed_reference or 0.0), row.key))
    first: dict[tuple[str, DecodeOptions], TrialRow] = {}
    for row in ranked:
        first.setdefault((row.options.method, row.rule), row)
    promising = [row for row in first.values() if (row.speed_reference or 0.0) > 1]
    by_nfe = sorted(able, key=lambda row: (-(row.nfe_factor_reference or 0.0), row.key))[:1]
    chosen = {row.key: row for row in [*promising, *by_nfe, *ranked]}
    return list(chosen.values())[:count]


def best_replayed(rows: Sequence[TrialRow]) -> TrialRow | None:
    """The fastest by estimate."""
    done = [row for row in rows if row.done and row.fidelity == "replay"]
    return max(done, key=lambda row: row.speed_reference or 0.0, default=None)
