"""The prefixes of all slots in one piece of memory, where a captured graph finds them again.

One row holds a token's keys and values of one layer. Every prefix has a run of rows, and behaves
otherwise as any :class:`models.cache.PrefixCache`.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from models.cache import PrefixCache, capacity_for
from models.spec import TargetSpec

FIRST_ROWS = 4096
"""Rows that the first slot makes room for; afterwards memory at least doubles."""


class KeyValuePool:
    """Keys and values ``[layers, rows, K, E]``; the first ``block_size`` rows are nobody's: there a
    forward writes what it need not keep.

    ``prefixes`` are those that hold rows; one that leaves it leaves its rows to others. ``moves``
    counts how often the memory was made anew: graphs of before must not be replayed.
    """

    def __init__(
        self,
        spec: TargetSpec,
        num_kv_heads: int,
        dtype: torch.dtype,
        device: torch.device,
        prefixes: Mapping[int, "PooledPrefix"],
    ) -> None:
        self.spec = spec
        self.num_kv_heads = num_kv_heads
        self.prefixes = prefixes
        self.moves = 0
        shape = (spec.num_layers, 0, num_kv_heads, spec.head_dim)
        self.keys = torch.empty(shape, dtype=dtype, device=device)
        self.values = torch.empty(shape, dtype=dtype, device=device)

    def find(self, tokens: int) -> int:
        """The first row of the first gap of ``tokens``; memory grows when there is none."""
        start = self.spec.block_size
        for prefix in sorted(self.prefixes.values(), key=lambda prefix: prefix.start):
            if prefix.start - start >= tokens:
                return start
            start = max(start, prefix.start + prefix.capacity)
        if start + tokens > self.keys.shape[1]:
            self._grow(start + tokens)
        return start

    def _grow(self, rows: int) -> None:
        rows = max(rows, FIRST_ROWS, 2 * self.keys.shape[1])
        self.keys, self.values = (self._grown(old, rows) for old in (self.keys, self.values))
        self.moves += 1
        for prefix in self.prefixes.values():
            prefix.look()

    def _grown(self, old: Tensor, rows: int) -> Tensor:
        new = old.new_zeros((old.shape[0], rows, *old.shape[2:]))
        new[:, : old.shape[1]] = old
        return new

    def write(self, layer: int, rows_T: Tensor, k_TKE: Tensor, v_TKE: Tensor) -> None:
        """Put keys and values into ``rows_T``, of which only nobody's may stand there twice."""
        self.keys[layer].index_copy_(0, rows_T, k_TKE)
        self.values[layer].index_copy_(0, rows_T, v_TKE)


class PooledPrefix(PrefixCache):
    """A prefix cache whose memory is ``capacity`` rows of a pool, from row ``start`` on."""

    def __init__(self, pool: KeyValuePool, tokens: int) -> None:
        super().__init__(pool.spec, pool.num_kv_heads, pool.keys.dtype, pool.keys.device)
        self.pool = pool
        self.capacity = capacity_for(tokens)
        self.start = pool.find(self.capacity)
        self.look()

    @property
    def behind(self) -> int:
        """The row where the next token goes."""
        return self.start + self.length

    def look(self) -> None:
        """See its rows where they are now."""
        rows = slice(self.start, self.start + self.capacity)
        self.keys = self.pool.keys[:, rows].transpose(1, 2)
        self.values = self.pool.values[:, rows].transpose(1, 2)

    def reserve(self, tokens: int) -> None:
        """Make room for ``tokens`` beyond the prefix; a run that is too short is moved."""
        need = self.length + tokens
        if need <= self.capacity:
            return
        capacity = capacity_for(need)
        start, kept = self.pool.find(capacity), slice(self.start, self.behind)
        for memory in (self.pool.keys, self.pool.values):
            memory[:, start : start + self.length] = memory[:, kept]
        self.start, self.capacity = start, capacity
        self.look()
