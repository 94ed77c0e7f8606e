"""What a small model is asked, and what it answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from decoders.options import DecodeOptions
from decoders.sequence import Sequence as Decoding
from decoders.state import State


@dataclass(frozen=True)
class Ask:
    """Draft on from ``state`` of the block behind ``text`` (all tokens before it, whole blocks)."""

    slot: int
    text: Sequence[int]
    state: State
    options: DecodeOptions
    noise_seed: int


@dataclass(frozen=True)
class BlockDraft:
    """Tokens in the order in which they were drafted: step tau = index + 1.

    ``best`` are the model's most likely tokens where these were drawn. At T>0 ``log_probs`` are the
    tokens' own under the distribution that they were drawn from, and ``distribution(i)`` is that
    whole distribution ``[V]`` as log-probabilities.
    """

    positions: tuple[int, ...]
    tokens: tuple[int, ...]
    best: tuple[int, ...]
    log_probs: tuple[float, ...]
    distribution: Callable[[int], Tensor]

    @property
    def fills(self) -> dict[int, int]:
        """Position to token, in drafting order."""
        return dict(zip(self.positions, self.tokens, strict=True))


class Drafting(Protocol):
    """A small model, here or in an actor of its own."""

    def draft(self, asks: Sequence[Ask]) -> list[BlockDraft]:
        """Up to ``decode.gamma`` tokens for every ask, in one forward a step for all of them."""
        ...

    def ahead(self, asks: Sequence[Ask]) -> None:
        """These are likely asked next: begin if that costs the caller nothing."""
        ...

    def leave(self, slot: int) -> None:
        """Forget what is held for a slot."""
        ...


def ask_of(sequence: Decoding) -> Ask:
    """What to ask for a sequence's active block."""
    request, slot = sequence.request, sequence.slot
    return Ask(slot, sequence.committed, sequence.state, request.options, request.noise_seed)


def draft_length(options: DecodeOptions, open_positions: int) -> int:
    """Tokens to draft where so many positions are open."""
    return min(int(options.gamma) or open_positions, open_positions)
