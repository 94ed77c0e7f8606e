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
from decoders.proposers.base import Draft, Origin, Proposer, View
from decoders.proposers.oracle import OracleProposer
from decoders.replay import absolute_step, as_recorded, check_setting, fixed_budget
from decoders.request import Result, Round
from decoders.rules import Step
from decoders.state import State
from decoders.trace import Trace, TracedBlock

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

    def drafts(self, budget: int, floor: float) -> int:
        """How many drafts a setting verifies behind this root."""
        return min(budget, bisect_right(self.lightness, -floor))

    def accepted(self, drafts: int) -> int:
        """How many of them the target goes through."""
        return bisect_right(self.needed, drafts)


NOTHING = Reach((), ())
"""Of a method that does not draft."""


@dataclass(frozen=True)
class Root:
    """A state that a round of some setting may begin at: ``block.states[index]``."""

    trace: Trace
    block: TracedBlock
    index: int

    def view(self, options: DecodeOptions) -> View:
        """What a proposer is shown here."""
        states, request = self.block.states, self.trace.request
        return View(
            states[self.index].state,
            states[self.index - 1].stale,
            as_recorded(request, options),
            self.block.end,
            Origin(request, self.block.start),
        )

    def following(self) -> Iterator[State]:
        """The states that the target reaches from here, in order."""
        return (traced.state for traced in self.block.states[self.index + 1 :])


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
    steps = [[_steps(block) for block in trace.blocks] for trace in traces]
    paths = dict(zip(families, (_paths(steps, iter(each)) for each in reaches), strict=True))
    for options in settings:
        blocks_of = paths[family_of(options)]
        yield [_result(*each, options) for each in zip(traces, blocks_of, strict=True)]


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
    """For each family the reach of every root of the traces, in order.

    All families are asked about a batch of roots in one call, so that they share what the proposer
    says of the same states.
    """
    roots = [
        Root(trace, block, index)
        for trace in traces
        for block in trace.blocks
        for index in range(1, len(block.states))
    ]
    found: list[list[Reach]] = [[] for _ in families]
    for start in range(0, len(roots), BATCH):
        batch = roots[start : start + BATCH]
        views = [root.view(options) for options in families if options.drafts for root in batch]
        drafts = iter(proposer.propose(views) if proposer is not None and views else ())
        for options, reaches in zip(families, found, strict=True):
            drafted = options.drafts and proposer is not None
            reaches += [
                reach_of(next(drafts), r.following()) if drafted else NOTHING for r in batch
            ]
    return found


def reach_of(drafts: Sequence[Draft], following: Iterable[State]) -> Reach:
    """What a list of drafts says about the states that really follow its root."""
    places = {draft.state: place for place, draft in enumerate(drafts, start=1)}
    reached = takewhile(bool, (places.get(state, 0) for state in following))
    return Reach(tuple(-draft.path_mass for draft in drafts), tuple(accumulate(reached, max)))


@dataclass(frozen=True)
class BlockPath:
    """A block's steps, one from each of its states, and the reach of all states but the first.

    Settings share most of their rounds, so that each is made once.
    """

    steps: tuple[Step, ...]
    reaches: tuple[Reach, ...]
    made: dict[tuple[int, int], Round] = field(default_factory=dict)

    def rounds(self, budget: int, floor: float) -> Iterator[Round]:
        """The rounds of one setting."""
        yield Round("open", steps=self.steps[:1])
        root = 1
        while root < len(self.steps):
            key = root, self.reaches[root - 1].drafts(budget, floor)
            round = self.made.get(key) or self.made.setdefault(key, self._round(*key))
            yield round
            root += round.accepted + 1

    def _round(self, root: int, drafts: int) -> Round:
        accepted = self.reaches[root - 1].accepted(drafts)
        steps = self.steps[root : root + accepted + 1]
        return Round("verify" if drafts else "step", drafts, accepted, steps)


def _steps(block: TracedBlock) -> tuple[Step, ...]:
    return tuple(absolute_step(block, index) for index in range(len(block.states)))


def _paths(
    steps: Sequence[Sequence[tuple[Step, ...]]], reaches: Iterator[Reach]
) -> list[list[BlockPath]]:
    """By trace and block; ``reaches`` are those of all roots, in order."""
    return [
        [BlockPath(of_block, tuple(islice(reaches, len(of_block) - 1))) for of_block in of_trace]
        for of_trace in steps
    ]


def _result(trace: Trace, blocks: Sequence[BlockPath], options: DecodeOptions) -> Result:
    rounds = [Round("prefill")] * trace.prefills
    for block in blocks:
        rounds += block.rounds(fixed_budget(options), options.gamma)
    return Result(trace.request, trace.token_ids, trace.stop_reason, tuple(rounds), seconds=0.0)
