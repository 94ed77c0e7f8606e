"""Which whole blocks of text are kept for later requests, and under which numbers.

A block's keys and values depend on all text before it. So a block is known by the number of the
block before it and its own tokens: equal numbers mean equal text from the beginning on, and nothing
can collide. Nothing here holds a tensor.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import count
from typing import NamedTuple

Key = tuple[int, tuple[int, ...]]
"""The number of the block before, and a block's tokens."""
BEGIN = -1
"""Stands before the first block of a text."""


class Added(NamedTuple):
    """Blocks of a text from the ``first``-th on are new, under these ``numbers``; the blocks whose
    numbers are ``gone`` made room."""

    first: int
    numbers: list[int]
    gone: list[int]


class PrefixStore:
    """Numbers of kept blocks, the least recently used first.

    A chain is used from its last block to its first. So no block was used later than the one that
    it continues, and nothing continues the least recently used one: it can go.
    """

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._numbers: OrderedDict[Key, int] = OrderedDict()
        self._fresh = count()

    def __len__(self) -> int:
        return len(self._numbers)

    def find(self, text: Sequence[int]) -> list[int]:
        """Numbers of the kept blocks that ``text`` begins with; they count as used now."""
        chain = self._chain(text)
        self._use(chain)
        return [self._numbers[key] for key in chain]

    def add(self, text: Sequence[int], most: int) -> Added:
        """Keep the whole blocks of ``text`` that are not kept yet, as far as ``most`` blocks in all
        have room."""
        assert len(self) <= most, "what has no room was given up before"
        chain = self._chain(text)
        self._use(chain)
        first, numbers = len(chain), list[int]()
        missing = list(self._blocks(text))[first:most]
        gone = self.shrink(most - len(missing))
        before = self._numbers[chain[-1]] if chain else BEGIN
        for block in missing:
            chain.append((before, block))
            before = self._numbers[chain[-1]] = next(self._fresh)
            numbers.append(before)
        self._use(chain)
        return Added(first, numbers, gone)

    def forget(self, numbers: Sequence[int]) -> None:
        """Blocks with these numbers, which :meth:`add` has given last, are not kept after all."""
        for key in [key for key, number in self._numbers.items() if number in numbers]:
            del self._numbers[key]

    def shrink(self, most: int) -> list[int]:
        """Give up the least recently used blocks beyond ``most``; returns their numbers."""
        return [self._numbers.popitem(last=False)[1] for _ in range(len(self) - most)]

    def _blocks(self, text: Sequence[int]) -> Iterator[tuple[int, ...]]:
        size = self.block_size
        for first in range(0, len(text) - size + 1, size):
            yield tuple(text[first : first + size])

    def _chain(self, text: Sequence[int]) -> list[Key]:
        chain, before = list[Key](), BEGIN
        for block in self._blocks(text):
            if (before, block) not in self._numbers:
                break
            chain.append((before, block))
            before = self._numbers[chain[-1]]
        return chain

    def _use(self, chain: Sequence[Key]) -> None:
        for key in reversed(chain):
            self._numbers.move_to_end(key)
