"""What rounds add up to, the same for replayed and for live ones."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from decoders.options import DecodeOptions

DRAFTING_KINDS = ("verify", "step")


class RoundFacts(NamedTuple):
    """One forward: its kind, its drafts, how many of them were accepted, and its commits."""

    kind: str
    drafts: int
    accepted: int
    commits: int


def count_rounds(rounds: Iterable[RoundFacts], options: DecodeOptions) -> dict[str, Any]:
    """Fields of a trial's row: forwards and what they brought."""
    rounds = list(rounds)
    counted = [r for r in rounds if r.kind in ("open", "step", "verify")]
    verified = [r.accepted for r in rounds if r.kind == "verify"]
    drafted = [r.drafts for r in rounds if r.kind in DRAFTING_KINDS]
    return {
        "nfe": len(counted),
        "forwards": len(rounds),
        "tokens_per_forward": mean([r.commits for r in counted]),
        "accepted_per_round": mean(verified),
        "drafts_per_round": mean(drafted),
        "drafting_ends": drafting_ends(drafted, options),
    }


def drafting_ends(drafts: list[int], options: DecodeOptions) -> str | None:
    """What most often ends drafting: the budget; else the mass floor or the pruning, where there is
    one; else the end of the block. Unless it is the budget, a larger one changes little."""
    if not options.drafts or not drafts or options.budget == "auto":
        return None
    if options.method == "simsd":
        full = Counter("gamma" if count == options.gamma else "block" for count in drafts)
        return full.most_common(1)[0][0]
    short = "gamma" if options.gamma > 0 else "prune" if options.prune > 0 else "block"
    budget = options.budget
    ends = Counter("budget" if count >= budget else short for count in drafts)
    return ends.most_common(1)[0][0]


def mean(values: list[int]) -> float:
    return sum(values) / len(values) if values else 0.0
