"""Whole blocks of earlier prefixes, kept apart from any slot for texts that begin in the same way.

Which block has which number is decided once for all ranks (:mod:`decoders.prefix_store`). They are
copies: whoever begins with them gets a prefix of its own, in one piece of memory.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from models.cache import PrefixCache


class KeptBlocks:
    """Keys and values ``[layers, K, L, E]`` by number."""

    def __init__(self) -> None:
        self._blocks: dict[int, tuple[Tensor, Tensor]] = {}

    def __len__(self) -> int:
        return len(self._blocks)

    def keep(self, cache: PrefixCache, first: int, numbers: Sequence[int]) -> None:
        """Copy the prefix's blocks from the ``first``-th on, each under its number."""
        assert (first + len(numbers)) * cache.block <= cache.length, "only full blocks are kept"
        new: dict[int, tuple[Tensor, Tensor]] = {}
        for index, number in enumerate(numbers, start=first):
            here = slice(index * cache.block, (index + 1) * cache.block)
            assert number not in self._blocks, f"number {number} is in use"
            new[number] = cache.keys[:, :, here].clone(), cache.values[:, :, here].clone()
        self._blocks |= new  # all of them or, where memory runs out, none

    def restore(self, cache: PrefixCache, numbers: Sequence[int]) -> None:
        """Begin an empty prefix with copies of these blocks, in this order.

        What a shifted prediction would begin with is not kept: one more block has to follow.
        """
        assert cache.length == 0, "a prefix begins with kept blocks"
        tokens = len(numbers) * cache.block
        cache.reserve(tokens)
        keys, values = zip(*(self._blocks[number] for number in numbers), strict=True)
        cache.keys[:, :, :tokens] = torch.cat(keys, dim=2)
        cache.values[:, :, :tokens] = torch.cat(values, dim=2)
        cache.advance(tokens)

    def drop(self, numbers: Sequence[int]) -> None:
        """Forget these blocks."""
        for number in numbers:
            del self._blocks[number]
