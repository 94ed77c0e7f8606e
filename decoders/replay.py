"""Replay: the exact rounds of any lossless setting, from a draft-free trace, without the target.

Under a lossless rule the accepted path is always the draft-free trajectory, so only the proposer
has to run; which of its drafts the target would have reached is read off the trace.
"""

from collections.abc import Generator, Sequence

from decoders.options import DecodeOptions
from decoders.proposers.base import Draft, Origin, Proposer, View
from decoders.proposers.oracle import OracleProposer
from decoders.request import Kind, Request, Result, Round
from decoders.rules import Step
from decoders.trace import Trace, TracedBlock

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
    traced, asked = request.options.rule(), as_recorded(request, options).rule()
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


def _replay_trace(trace: Trace, options: DecodeOptions) -> Asking:
    rounds = [Round("prefill")] * trace.prefills
    options = as_recorded(trace.request, options)
    for block in trace.blocks:
        rounds += yield from _replay_block(block, Origin(trace.request, block.start), options)
    return rounds


def _replay_block(block: TracedBlock, origin: Origin, options: DecodeOptions) -> Asking:
    """The rounds of one block: the opening forward, then draft and walk until it is done."""
    states = block.states
    rounds = [Round("open", steps=(absolute_step(block, 0),))]
    root = 1
    while root < len(states):
        drafts: list[Draft] = []
        if options.drafts:
            view = View(states[root].state, states[root - 1].stale, options, block.end, origin)
            drafts = yield view
        reachable = {draft.state for draft in drafts}
        last = root
        while last + 1 < len(states) and states[last + 1].state in reachable:
            last += 1
        kind: Kind = "verify" if drafts else "step"
        steps = tuple(absolute_step(block, index) for index in range(root, last + 1))
        rounds.append(Round(kind, len(drafts), last - root, steps))
        root = last + 1
    return rounds


def absolute_step(block: TracedBlock, index: int) -> Step:
    """The step made from one of a block's states, by absolute positions."""
    return tuple((block.start + p, token) for p, token in block.states[index].step)
