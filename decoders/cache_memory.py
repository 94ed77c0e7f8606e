"""A target's prefix cache as a memory of so many tokens, shared by the requests under way and by
blocks that are kept of earlier ones.

Requests come first: kept blocks fill what they leave free, and go, least recently used first, when
a request grows. What a request may take is known before its forward, so nothing is ever allocated
beyond the limit.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from decoders.prefix_store import PrefixStore
from decoders.sequence import Sequence as Decoding
from models.cache import GROWTH, capacity_for
from models.spec import TargetSpec


@runtime_checkable
class BlockKeeper(Protocol):
    """A target that keeps copies of whole blocks by number, apart from its slots."""

    spec: TargetSpec

    def keep(self, slot: int, first: int, numbers: Sequence[int]) -> None: ...
    def restore(self, slot: int, numbers: Sequence[int]) -> None: ...
    def drop(self, numbers: Sequence[int]) -> None: ...


class CacheMemory:
    """``tokens`` of keys and values on ``target``."""

    def __init__(self, target: BlockKeeper, tokens: int) -> None:
        self.target = target
        self.tokens = tokens
        self.store = PrefixStore(target.spec.block_size)
        self._claims: dict[int, int] = {}
        self.num_restored = 0
        """Tokens that requests began with instead of computing them."""
        self.num_prefilled = 0
        """Tokens that were computed ahead of decoding."""

    @property
    def claimed(self) -> int:
        """Tokens that the requests under way may take."""
        return sum(self._claims.values())

    @property
    def kept(self) -> int:
        """Tokens of blocks that are kept of earlier requests."""
        return len(self.store) * self.store.block_size

    def check(self, sequence: Decoding) -> None:
        """Raise ``ValueError`` for a request that could not even be decoded alone."""
        most = capacity_for(sequence.most_stored + sequence.scratch)
        if most > self.tokens:
            request = sequence.request
            raise ValueError(
                f"prompt ({len(request.prompt_ids)} tokens) and max_new_tokens "
                f"{request.options.max_new_tokens} take up to {most} tokens of prefix cache, "
                f"{sequence.scratch} of a forward among them; there are {self.tokens} "
                "(max_cache_tokens)"
            )

    def room_beside(self, sequences: Sequence[Decoding]) -> int:
        """Tokens that one more request may take beside these, if each of them is to grow once more
        before memory is short."""
        return self.tokens - sum(need_of(sequence) + GROWTH for sequence in sequences)

    def claim(self, sequences: Sequence[Decoding]) -> None:
        """These requests are under way; kept blocks make room for what their forwards may take."""
        self._claims = {sequence.slot: need_of(sequence) for sequence in sequences}
        assert self.claimed <= self.tokens, "who admits requests leaves room for them"
        self._drop(self.store.shrink(self._room))

    def release(self, slot: int) -> None:
        """The request in this slot is under way no more."""
        self._claims.pop(slot, None)

    def restore(self, slot: int, text: Sequence[int]) -> int:
        """Begin the prefix of an empty slot with the kept blocks of ``text``; returns how many
        tokens it has now."""
        numbers, block = self.store.find(text), self.store.block_size
        if self.target.spec.prediction == "shifted" and len(numbers) * block == len(text):
            # The last one has to be computed: its last token predicts the next block's first one.
            numbers = numbers[:-1]
        if numbers:
            self.target.restore(slot, numbers)
        restored = len(numbers) * block
        self.num_restored += restored
        self.num_prefilled += len(text) - restored
        return restored

    def keep(self, slot: int, text: Sequence[int]) -> None:
        """Keep what the slot holds: the blocks of ``text``, as far as there is room."""
        added = self.store.add(text, self._room)
        self._drop(added.gone)
        if not added.numbers:
            return
        try:
            self.target.keep(slot, added.first, added.numbers)
        except BaseException:  # as where a copy finds no memory: nobody may begin with these
            self.store.forget(added.numbers)
            raise

    @property
    def _room(self) -> int:
        return (self.tokens - self.claimed) // self.store.block_size

    def _drop(self, numbers: Sequence[int]) -> None:
        if numbers:
            self.target.drop(numbers)


def need_of(sequence: Decoding) -> int:
    """Tokens of cache that a request may take up to the end of its next forward."""
    return capacity_for(sequence.stored_length + sequence.scratch)
