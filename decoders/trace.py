"""Draft-free traces: what the target said and committed from every state of a request.

A trace is all that replay needs, and all that a drafter learns from. Positions are within the
block; the accepted path of any lossless method runs through these states (algorithms.md section 3).
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from decoders.options import DecodeOptions
from decoders.request import Request, Result, StopReason
from decoders.rules import Step
from decoders.sequence import Sequence
from decoders.stale import Stale
from decoders.state import BlockEnd, State


@dataclass(frozen=True)
class TracedState:
    """One forward of the draft-free run: the state, its distribution, the step made from it."""

    state: State
    stale: Stale
    step: Step


@dataclass(frozen=True)
class TracedBlock:
    """The states of one block, first to last; ``start`` is its absolute position."""

    start: int
    end: BlockEnd
    states: tuple[TracedState, ...]


@dataclass(frozen=True)
class Trace:
    """One request's draft-free trajectory and its outcome."""

    request: Request
    blocks: tuple[TracedBlock, ...]
    token_ids: tuple[int, ...]
    stop_reason: StopReason
    prefills: int

    @property
    def nfe(self) -> int:
        return sum(len(block.states) for block in self.blocks)


def check_recordable(options: DecodeOptions) -> None:
    """Raise ``ValueError`` for a run that no trace can hold: its commits must stay."""
    if options.edits:
        raise ValueError(
            f"decode.edit_tau {options.edit_tau}: a run that replaces tokens cannot be recorded; "
            "valid: 1 (off)"
        )


@dataclass
class TraceRecorder:
    """An observer of a draft-free run; :meth:`finish` turns what it saw into a trace."""

    seen: dict[str, list[tuple[int, BlockEnd, TracedState]]] = field(default_factory=dict)

    def observe(self, sequence: Sequence, state: State, stale: Stale, step: Step) -> None:
        check_recordable(sequence.request.options)
        entry = (sequence.block_start, sequence.end, TracedState(state, stale, step))
        self.seen.setdefault(sequence.request.id, []).append(entry)

    def finish(self, result: Result) -> Trace:
        """The trace of a finished request."""
        entries = self.seen.pop(result.request.id, [])
        return Trace(
            request=result.request,
            blocks=group_blocks(entries),
            token_ids=result.token_ids,
            stop_reason=result.stop_reason,
            prefills=sum(round.kind == "prefill" for round in result.rounds),
        )


def group_blocks(entries: Seq[tuple[int, BlockEnd, TracedState]]) -> tuple[TracedBlock, ...]:
    """Consecutive states of one block together."""
    starts = list(dict.fromkeys(start for start, _, _ in entries))
    blocks = []
    for start in starts:
        members = [entry for entry in entries if entry[0] == start]
        blocks.append(TracedBlock(start, members[0][1], tuple(m[2] for m in members)))
    return tuple(blocks)
