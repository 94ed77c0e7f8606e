"""Replaying a family of settings, those that differ in budget and floor alone, for one's price.

Every proposer's drafts are the first ones of its drafts at a larger budget and a smaller floor
(:class:`~decoders.proposers.base.Proposer`). So a family asks once what is drafted behind every
state that can be a root; the rounds of each of its settings follow by arithmetic, and are those of
:func:`decoders.replay.replay`, the slow twin.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice, takewhile

from decoders.options import DecodeOptions
from decoders.proposers.base import Draft, Place, Proposer
from decoders.proposers.oracle import OracleProposer
from decoders.replay import (
    absolute_step,
    as_recorded,
    check_setting,
    fixed_budget,
    roots_of,
)
from decoders.request import Kind, Result, Round
from decoders.rules import Step
from decoders.trace import Trace

BATCH = 32
"""Roots that are asked about together: they share the order model's forwards."""


@dataclass(frozen=True)
class Reach:
    """How far any cut of one root's drafts reaches along the trajectory behind it."""

    lightness: tuple[float, ...]
    """Minus the drafts' path masses, which rises along the list."""
    needed: tuple[int, ...]
    """``needed[k]``: how many drafts it takes to hold the k + 1 states that follow the root; it
    ends at the first state that is not drafted."""
    full: frozenset[int] = frozenset()
    """Places of full drafts, which are verified only with the copy behind them."""

    def drafts(self, budget: int, floor: float) -> int:
        """How many drafts a setting verifies behind this root."""
        count = min(budget, bisect_right(self.lightness, -floor))
        return count - (count in self.full)

    def accepted(self, drafts: int) -> int:
        """How many of them the target goes through."""
        return bisect_right(self.needed, drafts)


NOTHING = Reach((), ())
"""Of a method that does not draft."""


def replay_settings(
    traces: Sequence[Trace], settings: Sequence[DecodeOptions], proposer: Proposer | None
) -> Iterator[list[Result]]:
    """What ``replay(traces, options, proposer)`` returns, for each of the settings in turn.

    All settings are of the proposer's method. Raises ``ValueError`` as ``replay`` does.
    """
    families = widest(settings)
    for options in families.values():
        for trace in traces:
            check_setting(trace.request, options)
    if isinstance(proposer, OracleProposer):
        proposer.futures.learn(traces)
    reaches = ask(traces, list(families.values()), proposer)
    paths = {
        family: _paths(traces, iter(each)) for family, each in zip(families, reaches, strict=True)
    }
    for options in settings:
        found = paths[family_of(options)]
        yield [_result(*each, options) for each in zip(traces, found, strict=True)]


def family_of(options: DecodeOptions) -> DecodeOptions:
    """What the settings of one family have in common."""
    return options.model_copy(update={"budget": 0, "gamma": 0.0})


def widest(settings: Iterable[DecodeOptions]) -> dict[DecodeOptions, DecodeOptions]:
    """By family, the setting of which all its settings' drafts are a part."""
    budgets: dict[DecodeOptions, int] = {}
    for options in settings:
        family = family_of(options)
        budgets[family] = max(fixed_budget(options), budgets.get(family, 0))
    return {
        family: family.model_copy(update={"budget": budget}) for family, budget in budgets.items()
    }


def ask(
    traces: Sequence[Trace], families: Sequence[DecodeOptions], proposer: Proposer | None
) -> list[list[Reach]]:
    """For each family the reach of every state of the traces, in order; of those that open a block
    it is nothing.

    All families are asked about a batch of roots in one call, so that they share what the proposer
    says of the same states.
    """
    roots = [root for trace in traces for root in roots_of(trace)]
    found: list[list[Reach]] = [[] for _ in families]
    for start in range(0, len(roots), BATCH):
        batch = roots[start : start + BATCH]
        views = [
            root.view(as_recorded(root.trace.request, options))
            for options in families
            for root in batch
            if options.drafts and not root.opens
        ]
        answers = iter(proposer.propose(views) if proposer is not None and views else ())
        for options, reaches in zip(families, found, strict=True):
            drafted = proposer is not None and options.drafts
            for root in batch:
                if not drafted or root.opens:
                    reaches.append(NOTHING)
                    continue
                drafts = root.drafts(next(answers), options)
                reaches.append(reach_of(drafts, root.following(), root.block.end.mask_id))
    return found


def reach_of(drafts: Sequence[Draft], following: Iterable[Place], mask_id: int) -> Reach:
    """What a list of drafts says about the places that are really reached from its root."""
    places = {draft.place: number for number, draft in enumerate(drafts, start=1)}
    reached = takewhile(bool, (places.get(place, 0) for place in following))
    return Reach(
        tuple(-draft.path_mass for draft in drafts),
        tuple(accumulate(reached, max)),
        frozenset(n for n, draft in enumerate(drafts, start=1) if mask_id not in draft.state),
    )


@dataclass(frozen=True)
class Path:
    """A trace's steps, one from each of its states, with their reaches; blocks are ``opened`` at
    some of them.

    Settings share most of their rounds, so that each is made once.
    """

    steps: tuple[Step, ...]
    opened: frozenset[int]
    reaches: tuple[Reach, ...]
    made: dict[tuple[int, int], Round] = field(default_factory=dict)

    def rounds(self, budget: int, floor: float) -> Iterator[Round]:
        """The rounds of one setting."""
        root = 0
        while root < len(self.steps):
            key = root, self.reaches[root].drafts(budget, floor)
            round = self.made.get(key) or self.made.setdefault(key, self._round(*key))
            yield round
            root += round.accepted + 1

    def _round(self, root: int, drafts: int) -> Round:
        accepted = self.reaches[root].accepted(drafts)
        steps = self.steps[root : root + accepted + 1]
        kind: Kind = "verify" if drafts else "open" if root in self.opened else "step"
        return Round(kind, drafts, accepted, steps)


def _paths(traces: Sequence[Trace], reaches: Iterator[Reach]) -> list[Path]:
    """By trace; ``reaches`` are those of all their states, in order."""
    paths = []
    for trace in traces:
        roots = roots_of(trace)
        steps = tuple(absolute_step(root.block, root.index) for root in roots)
        opened = frozenset(at for at, root in enumerate(roots) if root.opens)
        paths.append(Path(steps, opened, tuple(islice(reaches, len(roots)))))
    return paths


def _result(trace: Trace, path: Path, options: DecodeOptions) -> Result:
    rounds = [Round("prefill")] * trace.prefills
    rounds += path.rounds(fixed_budget(options), options.gamma)
    return Result(trace.request, trace.token_ids, trace.stop_reason, tuple(rounds), seconds=0.0)
