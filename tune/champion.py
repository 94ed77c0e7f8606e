"""Who wins: the best live trial that is exact and no worse than standard decoding."""

from collections.abc import Sequence

from decoders.options import DecodeOptions
from tasks.intervals import paired_bound, paired_interval
from tune.config import ChampionPolicy, Objective
from tune.objectives import preference, value_of
from tune.row import Fidelity, TrialRow

UNBOUNDED = ChampionPolicy()


def choose_champion(
    rows: Sequence[TrialRow],
    reference_key: str,
    policy: ChampionPolicy,
    objectives: Sequence[Objective] = ("speed",),
) -> TrialRow | None:
    """The winner among ``rows`` by ``objectives``, or none while the reference is not measured."""
    live = [row for row in rows if row.fidelity == "live" and row.done]
    reference = next((row for row in live if row.key == reference_key), None)
    if reference is None:
        return None
    allowed = [row for row in live if may_win(row, rows, reference, policy)]
    return max(allowed, key=lambda row: preference(row, objectives), default=None)


def may_win(
    row: TrialRow, rows: Sequence[TrialRow], reference: TrialRow, policy: ChampionPolicy
) -> bool:
    """Whether certificate, accuracy and latency allow this row to win.

    An exact row must not be below the reference: neither on its own replies, nor on the recorded
    ones of its rule. Another one may only when the policy asks for it. Bounds hold for all.
    """
    is_exact = row.certificate == "exact"
    if not (is_exact or policy.approximate) or not is_quick(row, policy):
        return False
    if not is_exact:
        return loses_little(row, reference, policy)
    if row.rule == reference.rule:
        return True  # its replies are the reference's
    told = [(row, reference)]
    ours, theirs = _recorded(rows, row), _recorded(rows, reference)
    if ours and theirs:
        told.append((ours, theirs))
    return all(not_below(*pair) for pair in told) and loses_little(*told[-1], policy)


def is_quick(row: TrialRow, policy: ChampionPolicy) -> bool:
    """Whether answers come within the policy's bound."""
    if policy.max_latency is None:
        return True
    return row.latency_p95 is not None and row.latency_p95 <= policy.max_latency


def loses_little(row: TrialRow, reference: TrialRow, policy: ChampionPolicy) -> bool:
    """Whether the loss of accuracy is within the policy's bound, with 95 % confidence."""
    return policy.max_loss is None or paired_bound(*_common(row, reference)) >= -policy.max_loss


def not_below(row: TrialRow, reference: TrialRow) -> bool:
    """Whether the paired 95 % interval of the accuracies' difference reaches zero."""
    return paired_interval(*_common(row, reference))[1] >= 0


def _common(row: TrialRow, reference: TrialRow) -> tuple[list[bool], list[bool]]:
    """Which replies are right, on the problems of both."""
    common = [id_ for id_ in row.correct if id_ in reference.correct]
    return [row.correct[id_] for id_ in common], [reference.correct[id_] for id_ in common]


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


def choose_live(
    rows: Sequence[TrialRow],
    reference: TrialRow,
    count: int,
    objectives: Sequence[Objective] = ("speed",),
    policy: ChampionPolicy = UNBOUNDED,
) -> list[TrialRow]:
    """The replayed settings to try on the target: the best by estimate, those of each method and
    rule first, then the best in NFE, then whatever is next; those that cannot win stay out, and
    those whose answers seem too slow for ``policy`` come last."""
    drafted = [row for row in rows if row.fidelity == "replay" and row.done and row.options.drafts]
    able = sorted((row for row in drafted if not_below(row, reference)), key=lambda row: row.key)

    def rank(row: TrialRow) -> tuple[float, ...]:
        return (is_quick(row, policy), *preference(row, objectives))

    ranked = sorted(able, key=rank, reverse=True)
    first: dict[tuple[str, DecodeOptions], TrialRow] = {}
    for row in ranked:
        first.setdefault((row.options.method, row.rule), row)
    goal = objectives[0]
    least = value_of(reference, goal)
    promising = [row for row in first.values() if value_of(row, goal) > least]
    by_nfe = sorted(able, key=lambda row: (-(row.nfe_factor_reference or 0.0), row.key))[:1]
    chosen = {row.key: row for row in [*promising, *by_nfe, *ranked]}
    return list(chosen.values())[:count]


def best_replayed(rows: Sequence[TrialRow], objectives: Sequence[Objective]) -> TrialRow | None:
    """The best by estimate."""
    done = [row for row in rows if row.done and row.fidelity == "replay"]
    return max(done, key=lambda row: preference(row, objectives), default=None)
