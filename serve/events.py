"""What ``maskahead: {"events": true}`` adds to a stream: every round as it was decoded.

Each chunk's choice then has a field ``maskahead`` beside OpenAI's own: clients keep or ignore it,
so the stream stays an OpenAI stream. A round without new text makes a chunk with an empty text.
"""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, Field

from actors.ticket import Delta
from decoders.options import OPTIONS_OF
from decoders.request import NFE_KINDS, Kind, Request, Result, StopReason
from decoders.rules import Step
from decoders.sight import DraftNode, SeenRound
from models.spec import TargetSpec
from models.text import TextCodec

Fill = tuple[int, int, str]
"""Absolute position, token id, and the token's own text."""
Commit = tuple[int, int, str, float | None]
"""A fill and its confidence, where that is known."""


def is_absent(value: object) -> bool:
    """For fields that are left out of the JSON rather than null."""
    return value is None


class Begin(BaseModel):
    """What decides a choice, and where it is written: blocks of ``block_size`` positions from
    ``start`` on, of which the first ones may be the prompt's ``tail``; text ends at ``limit``."""

    decode: dict[str, Any]
    seed: str
    """As text: it has 64 bits, and JavaScript's numbers 53."""
    promises_equality: bool
    """Whether the method promises the output of its own draft-free run."""
    rule: dict[str, Any]
    """What decides that run: two requests that agree on it, on prompt and seed write the same."""
    prompt_tokens: int
    start: int
    block_size: int
    limit: int
    tail: list[Fill]


class EventNode(BaseModel):
    """A drafted state: its fills beyond its parent's (an index of the list; null is the root)."""

    parent: int | None
    fills: list[Fill]
    mass: float | None
    accepted: bool


class EventRound(BaseModel):
    """One forward. ``nfe`` and ``seconds`` count from the request's start to this round's end."""

    kind: Kind
    drafts: int
    accepted: int
    nfe: int
    seconds: float
    steps: list[list[Commit]]
    tree: list[EventNode]


class End(BaseModel):
    """The finished choice, counted as in ``usage.maskahead``."""

    token_ids: tuple[int, ...]
    stop_reason: StopReason
    nfe: int
    forwards: int
    tokens_per_forward: float
    accepted_per_round: float
    seconds: float


class Events(BaseModel):
    """The field ``maskahead`` of a watched choice's chunk; ``begin`` comes once, with the first
    chunk, ``end`` with the last (of a chat those between role and finish reason)."""

    begin: Begin | None = Field(default=None, exclude_if=is_absent)
    rounds: list[EventRound]
    end: End | None = Field(default=None, exclude_if=is_absent)


class EventLog:
    """Turns one watched choice's deltas into events."""

    def __init__(self, request: Request, spec: TargetSpec, codec: TextCodec) -> None:
        self._begin: Begin | None = begin_of(request, spec, codec)
        self._codec = codec
        self._nfe = 0

    def events(self, delta: Delta) -> Events:
        """What is new."""
        begin, self._begin = self._begin, None
        rounds = [self._round(seen) for seen in delta.rounds]
        end = None if delta.result is None else end_of(delta.result)
        return Events(begin=begin, rounds=rounds, end=end)

    def _round(self, seen: SeenRound) -> EventRound:
        round, sight = seen.round, seen.sight
        self._nfe += round.kind in NFE_KINDS
        sure = sight.confidences if sight else [(None,) * len(step) for step in round.steps]
        steps = [
            [(*fill, rounded(known)) for fill, known in zip(self._fills(step), own, strict=True)]
            for step, own in zip(round.steps, sure, strict=True)
        ]
        return EventRound(
            kind=round.kind,
            drafts=round.drafts,
            accepted=round.accepted,
            nfe=self._nfe,
            seconds=round_seconds(seen.seconds),
            steps=steps,
            tree=[self._node(node) for node in sight.tree] if sight else [],
        )

    def _node(self, node: DraftNode) -> EventNode:
        return EventNode(
            parent=node.parent,
            fills=self._fills(node.fills),
            mass=rounded(node.mass),
            accepted=node.accepted,
        )

    def _fills(self, step: Step) -> list[Fill]:
        return fills_of(step, self._codec)


def begin_of(request: Request, spec: TargetSpec, codec: TextCodec) -> Begin:
    """What is known of a choice before it runs."""
    options, prompt = request.options, request.prompt_ids
    start = spec.first_block(len(prompt))
    named = OPTIONS_OF[options.method] - {"seed", "batch_size"}
    return Begin(
        decode=options.model_dump(include=named),
        seed=str(request.noise_seed),
        promises_equality=options.promises_equality,
        rule=options.commit_rule(),
        prompt_tokens=len(prompt),
        start=start,
        block_size=spec.block_size,
        limit=len(prompt) + options.max_new_tokens,
        tail=fills_of(tuple(enumerate(prompt))[start:], codec),
    )


def end_of(result: Result) -> End:
    """A finished choice's facts."""
    return End(
        token_ids=result.token_ids,
        stop_reason=result.stop_reason,
        nfe=result.nfe,
        forwards=result.forwards,
        tokens_per_forward=round(result.tokens_per_forward, 4),
        accepted_per_round=round(result.accepted_per_round, 4),
        seconds=round_seconds(result.seconds),
    )


def fills_of(step: Sequence[tuple[int, int]], codec: TextCodec) -> list[Fill]:
    """Commits with their tokens' text."""
    return [(position, token, codec.piece(token)) for position, token in step]


def rounded(probability: float | None) -> float | None:
    return None if probability is None else round(probability, 6)


def round_seconds(seconds: float) -> float:
    return round(seconds, 6)
