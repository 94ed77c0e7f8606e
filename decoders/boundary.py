"""The block boundary: copies of the next block that ride in a forward of the active one
(algorithms.md section 6).

A draft that fills the active block is *full*: nothing is left to ask of it, but behind it the next
block's first state can be forwarded, and drafts of that block where a stale distribution of it is
known. If the target reaches the full draft, the walk goes on behind it, the draft's own keys and
values are stored, and the next block needs no forward to open.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from decoders.options import DecodeOptions
from decoders.proposers.base import Draft
from decoders.request import TokenLogprob
from decoders.rules import Step
from decoders.stale import Stale
from decoders.state import State, fill
from models.spec import TargetSpec


def check_boundary(options: DecodeOptions, spec: TargetSpec) -> None:
    """Raise ``ValueError`` for options that this target's blocks have no boundary for."""
    for name, off in (("cross_block", False), ("draft_refresh", 0)):
        value = getattr(options, name)
        if value != off and spec.topology == "bidirectional":
            raise ValueError(
                f"decode.{name} {value}: the blocks of a bidirectional target ({spec.family}) see "
                f"those that follow, none is behind another; valid: {off}"
            )


Told = Mapping[int, TokenLogprob]
"""By position within the block, what the target said of the token there; empty where nobody
asked."""


@dataclass(frozen=True)
class Opening:
    """What the target said of the next block behind one full state of the active one: the step
    from its all-masked state, and what reads its distribution there."""

    step: Step
    stale: Callable[[], Stale]
    told: Told = field(default_factory=dict)


@dataclass(frozen=True)
class Leg:
    """Steps made within one block; ``last`` is the state that the last one was made from, and
    ``stale``, where that is kept, reads what the target said of it."""

    steps: tuple[Step, ...]
    last: State
    stale: Callable[[], Stale] | None
    told: Told = field(default_factory=dict)

    def reached(self, root: State) -> list[State]:
        """The states that the steps lead to from ``root``, in order."""
        found = [root]
        for step in self.steps:
            found.append(fill(found[-1], step))
        return found[1:]


Openings = Mapping[State, Opening]
"""By full state, in the order in which the target was offered them."""


def likeliest_fill(root: State, stale: Stale, mask_id: int) -> State:
    """The root with every masked position's first candidate."""
    first = zip(stale.positions.tolist(), stale.candidates[:, 0].tolist(), strict=True)
    return fill(root, tuple(commit for commit in first if root[commit[0]] == mask_id))


def nearest(openings: Openings, full: State) -> Opening:
    """The opening behind ``full``, or the full state that most agrees with it (of equals the
    first)."""

    def agreement(other: State) -> int:
        return sum(a == b for a, b in zip(other, full, strict=True))

    return openings[max(openings, key=agreement)]


def first_state(blank: State, full: State, openings: Openings) -> State:
    """The next block's state to forward behind ``full``: all masked, or, where the target's step
    from that is known, the state after it."""
    known = openings.get(full)
    return fill(blank, known.step) if known else blank


def across(
    drafts: Sequence[Draft], first_behind: Callable[[State], State | None], mask_id: int
) -> list[Draft]:
    """``drafts`` with the next block's first state behind each full one; a full one that has none
    (the text ends there) is left out."""
    found: list[Draft] = []
    for draft in drafts:
        if mask_id in draft.state:
            found.append(draft)
            continue
        first = first_behind(draft.state)
        if first is not None:
            found += [draft, draft._replace(state=first, behind=draft.state)]
    return found


def merge_behind(drafts: Sequence[Draft], full: State, ahead: Sequence[Draft]) -> list[Draft]:
    """``drafts`` of :func:`across` with the next block's drafts ``ahead`` behind ``full``, if that
    is drafted. Both lists keep their order; of their heads the heavier comes first."""
    before = list(takewhile(lambda draft: draft.behind != full, drafts))
    if len(before) == len(drafts):
        return before
    first, *rest = drafts[len(before) :]
    waiting = [
        Draft(draft.state, draft.mass * first.mass, draft.path_mass * first.path_mass, full)
        for draft in ahead
    ]
    merged = [*before, first]
    while rest and waiting:
        merged.append((waiting if waiting[0].mass > rest[0].mass else rest).pop(0))
    return merged + rest + waiting


def cut(drafts: Sequence[Draft], budget: int, mask_id: int) -> list[Draft]:
    """The first ``budget`` drafts, without a full one that nothing rides behind."""
    kept = drafts[: max(0, budget)]
    carrying = {draft.behind for draft in kept}
    return [draft for draft in kept if mask_id in draft.state or draft.state in carrying]
