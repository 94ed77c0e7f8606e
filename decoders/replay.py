"""Replay: the exact rounds of any lossless setting, from a draft-free trace, without the target.

Under a lossless rule the accepted path is always the draft-free trajectory, so only the proposer
has to run; which of its drafts the target would have reached is read off the trace.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from decoders.boundary import across, cut
from decoders.options import DecodeOptions
from decoders.proposers.base import Draft, Origin, Place, Proposer, View
from decoders.proposers.oracle import OracleProposer
from decoders.request import Kind, Request, Result, Round
from decoders.rules import Step
from decoders.state import fill
from decoders.trace import Trace, TracedBlock, TracedState

Asking = Generator[View, list[Draft], list[Round]]
"""A replay that yields a root, is sent its drafts, and returns its rounds."""


def replay(
    traces: Sequence[Trace], options: DecodeOptions, proposer: Proposer | None
) -> list[Result]:
    """What decoding with ``options`` would have done, trace by trace; ``seconds`` is 0.

    Seeds, limits and temperatures stay those of the traces. Raises ``ValueError`` when ``options``
    follow another rule than the traces.
    """
    for trace in traces:
        check_setting(trace.request, options)
    if isinstance(proposer, OracleProposer):
        proposer.futures.learn(traces)
    running = {i: _replay_trace(trace, options) for i, trace in enumerate(traces)}
    rounds: dict[int, list[Round]] = {}
    answers: dict[int, list[Draft]] = {}
    while running:
        views: dict[int, View] = {}
        for index, asking in list(running.items()):
            try:
                views[index] = asking.send(answers[index]) if index in answers else next(asking)
            except StopIteration as stop:
                rounds[index] = stop.value
                del running[index]
        drafts = _propose(list(views.values()), proposer)
        answers = dict(zip(views, drafts, strict=True))
    return [
        Result(trace.request, trace.token_ids, trace.stop_reason, tuple(rounds[i]), seconds=0.0)
        for i, trace in enumerate(traces)
    ]


def _propose(views: list[View], proposer: Proposer | None) -> list[list[Draft]]:
    if proposer is None or not views:
        return [[] for _ in views]
    return proposer.propose(views)


def check_setting(request: Request, options: DecodeOptions) -> None:
    """Raise ``ValueError`` unless the trace of ``request`` tells what ``options`` would do."""
    fixed_budget(options)
    if not options.lossless:
        raise ValueError(
            f"decode.rule {options.rule}: its output depends on the drafts, which no trace tells; "
            "decode live, or replay rule exact"
        )
    if options.draft_refresh:
        raise ValueError(
            f"decode.draft_refresh {options.draft_refresh}: what the target says behind a fill "
            "that it does not make stands in no trace; replay takes 0, a live run any"
        )
    traced, asked = request.options.commit_rule(), as_recorded(request, options).commit_rule()
    for key in traced.keys() | asked.keys():
        if traced.get(key) != asked.get(key):
            raise ValueError(
                f"decode.{key} {asked.get(key)!r}: these traces were recorded with "
                f"{traced.get(key)!r}; record them again with the rule to be replayed"
            )


def fixed_budget(options: DecodeOptions) -> int:
    """The budget of a setting that can be replayed; raises ``ValueError`` for ``auto``."""
    if options.budget == "auto":
        raise ValueError("decode.budget auto: it follows measured time; replay takes a number")
    return options.budget


def as_recorded(request: Request, options: DecodeOptions) -> DecodeOptions:
    """The options with the request's own limit and temperature."""
    own = request.options
    return options.model_copy(
        update={"temperature": own.temperature, "max_new_tokens": own.max_new_tokens}
    )


@dataclass(frozen=True)
class Root:
    """A state of a trace that a round may begin at: ``states[index]`` of its block, which is the
    ``number``-th."""

    trace: Trace
    number: int
    index: int

    @property
    def block(self) -> TracedBlock:
        return self.trace.blocks[self.number]

    @property
    def traced(self) -> TracedState:
        return self.block.states[self.index]

    @property
    def opens(self) -> bool:
        """Nothing is drafted at a block's first state: no distribution of it is known."""
        return self.index == 0

    def view(self, options: DecodeOptions) -> View:
        """What a proposer is shown here."""
        return View(
            self.traced.state,
            self.block.states[self.index - 1].stale,
            options,
            self.block.end,
            Origin(self.trace.request, self.block.start),
            crosses=options.cross_block,
        )

    def drafts(self, found: Sequence[Draft], options: DecodeOptions) -> list[Draft]:
        """What is verified here of a proposer's drafts: the next block's masked copies are added,
        the budget cuts."""
        mask_id = self.block.end.mask_id
        blank = (mask_id,) * len(self.traced.state)
        return cut(across(found, lambda _: blank, mask_id), fixed_budget(options), mask_id)

    def following(self) -> list[Place]:
        """The places that the target reaches from here, in order, as far as drafts can lie."""
        places: list[Place] = [(None, t.state) for t in self.block.states[self.index + 1 :]]
        if self.number + 1 < len(self.trace.blocks):
            last = self.block.states[-1]
            full = fill(last.state, last.step)
            first = self.trace.blocks[self.number + 1].states[0].state
            places.append((full, first))
        return places


def roots_of(trace: Trace) -> list[Root]:
    """Every state of the trace, in order."""
    return [
        Root(trace, number, index)
        for number, block in enumerate(trace.blocks)
        for index in range(len(block.states))
    ]


def _replay_trace(trace: Trace, options: DecodeOptions) -> Asking:
    """The rounds of one request: a forward that opens the block, or draft and walk, until all
    states are left behind."""
    rounds = [Round("prefill")] * trace.prefills
    options = as_recorded(trace.request, options)
    roots = roots_of(trace)
    steps = [absolute_step(root.block, root.index) for root in roots]
    at = 0
    while at < len(roots):
        root = roots[at]
        drafts: list[Draft] = []
        if options.drafts and not root.opens:
            drafts = root.drafts((yield root.view(options)), options)
        reachable = {draft.place for draft in drafts}
        accepted = len(list(takewhile(reachable.__contains__, root.following())))
        kind: Kind = "verify" if drafts else "open" if root.opens else "step"
        made = tuple(steps[at : at + accepted + 1])
        rounds.append(Round(kind, len(drafts), accepted, made))
        at += accepted + 1
    return rounds


def absolute_step(block: TracedBlock, index: int) -> Step:
    """The step made from one of a block's states, by absolute positions."""
    return tuple((block.start + p, token) for p, token in block.states[index].step)
