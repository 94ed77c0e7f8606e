"""The prefixes of all slots in one piece of memory, where a captured graph finds them again.

One row holds a token's keys and values of one layer. A slot has a run of rows, the first ``length``
of which are its prefix; what lies behind is scratch, as in :class:`models.cache.PrefixCache`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from models.spec import TargetSpec

FIRST_ROWS = 4096
"""Rows that the first slot makes room for; afterwards memory at least doubles."""


@dataclass
class Run:
    """A slot's rows; ``last_hidden`` is that of its prefix's last token (shifted predictions)."""

    start: int
    capacity: int
    length: int = 0
    last_hidden: Tensor | None = None

    @property
    def behind(self) -> int:
        """The row where the next token goes."""
        return self.start + self.length


class KeyValuePool:
    """Keys and values ``[layers, rows, K, E]``; the first ``block_size`` rows are nobody's: there a
    forward writes what it need not keep.

    ``moves`` counts how often the memory was made anew: graphs of before must not be replayed.
    """

    def __init__(
        self, spec: TargetSpec, num_kv_heads: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.block = spec.block_size
        self.moves = 0
        self.runs: dict[int, Run] = {}
        shape = (spec.num_layers, 0, num_kv_heads, spec.head_dim)
        self.keys = torch.empty(shape, dtype=dtype, device=device)
        self.values = torch.empty(shape, dtype=dtype, device=device)

    def open(self, slot: int, tokens: int) -> None:
        """An empty prefix with room for ``tokens``."""
        assert slot not in self.runs, f"slot {slot} is in use"
        self.runs[slot] = Run(self._find(tokens), tokens)

    def close(self, slot: int) -> None:
        """Free the rows of ``slot``."""
        del self.runs[slot]

    def reserve(self, slot: int, tokens: int) -> None:
        """Room for ``tokens`` beyond the prefix; a run that is too short is moved, and at least
        doubled."""
        run = self.runs[slot]
        need = run.length + tokens
        if need <= run.capacity:
            return
        capacity = max(need, 2 * run.capacity)
        start = self._find(capacity)
        for memory in (self.keys, self.values):
            memory[:, start : start + run.length] = memory[:, run.start : run.behind]
        self.runs[slot] = Run(start, capacity, run.length, run.last_hidden)

    def _find(self, tokens: int) -> int:
        """The first gap of ``tokens`` rows; memory grows when there is none."""
        start = self.block
        for run in sorted(self.runs.values(), key=lambda run: run.start):
            if run.start - start >= tokens:
                return start
            start = max(start, run.start + run.capacity)
        if start + tokens > self.keys.shape[1]:
            self._grow(start + tokens)
        return start

    def _grow(self, rows: int) -> None:
        rows = max(rows, FIRST_ROWS, 2 * self.keys.shape[1])
        self.keys, self.values = (self._grown(old, rows) for old in (self.keys, self.values))
        self.moves += 1

    def _grown(self, old: Tensor, rows: int) -> Tensor:
        new = old.new_zeros((old.shape[0], rows, *old.shape[2:]))
        new[:, : old.shape[1]] = old
        return new

    def write(self, layer: int, rows_T: Tensor, k_TKE: Tensor, v_TKE: Tensor) -> None:
        """Put keys and values into ``rows_T``, of which only nobody's may stand there twice."""
        self.keys[layer].index_copy_(0, rows_T, k_TKE)
        self.values[layer].index_copy_(0, rows_T, v_TKE)

    def write_behind(self, slot: int, layer: int, k_TKE: Tensor, v_TKE: Tensor) -> None:
        """Put keys and values right behind the prefix of ``slot`` (scratch until advanced)."""
        first = self.runs[slot].behind
        rows = slice(first, first + len(k_TKE))
        self.keys[layer, rows], self.values[layer, rows] = k_TKE, v_TKE

    def view(self, slot: int, layer: int, extra: int = 0) -> tuple[Tensor, Tensor]:
        """Keys and values ``[K, length + extra, E]`` of one slot and layer, not copied."""
        run = self.runs[slot]
        rows = slice(run.start, run.behind + extra)
        return self.keys[layer, rows].transpose(0, 1), self.values[layer, rows].transpose(0, 1)

    def advance(self, slot: int, tokens: int, last_hidden: Tensor | None = None) -> None:
        """Count ``tokens`` written tokens, whole blocks only, as part of the prefix."""
        run = self.runs[slot]
        assert tokens % self.block == 0, "only full blocks are kept"
        run.length += tokens
        run.last_hidden = last_hidden
        assert run.length <= run.capacity
