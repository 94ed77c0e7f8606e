"""Drafters that are models of their own and follow every request through its text."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from torch import Tensor

from decoders.proposers.base import Place
from decoders.sequence import Sequence as Decoding
from models.queries import Query
from models.spec import TargetSpec


@runtime_checkable
class MaskedForwarder(Protocol):
    """A target that takes queries with masks of their own."""

    spec: TargetSpec

    def forward_queries(self, queries: Sequence[Query]) -> Tensor: ...


@runtime_checkable
class Companion(Protocol):
    """It reads a request's text itself, so it can draft before the target has said anything of a
    block, and it keeps a prefix for every slot until that slot is left."""

    def states(self, sequences: Sequence[Decoding]) -> list[list[Place]]:
        """Future states of every sequence's block, a parent before its child."""
        ...

    def round(self, target: MaskedForwarder, sequences: Sequence[Decoding]) -> list[Decoding]:
        """Draft, verify under the companion's own mask, commit; returns the sequences whose text is
        complete."""
        ...

    def leave(self, slot: int) -> None:
        """Forget the text of a slot, if one is held."""
        ...
