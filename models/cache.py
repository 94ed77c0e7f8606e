"""The prefix cache of one request: keys and values of its full blocks, and of nothing else."""

import torch
from torch import Tensor

from models.spec import TargetSpec

GROWTH = 64
"""Tokens by which a prefix's memory grows: what it takes is known without looking at it."""


def capacity_for(tokens: int) -> int:
    """Tokens of memory that a prefix takes which was asked to hold ``tokens``."""
    return -(-tokens // GROWTH) * GROWTH


class PrefixCache:
    """Keys and values ``[layers, K, capacity, E]``, of which the first ``length`` tokens count.

    Room beyond ``length`` is scratch: a forward writes there, and what it wrote becomes part of
    the prefix only through :meth:`advance`, a whole number of blocks at a time. Blocks written
    further out than the next one are offered: one of them may be adopted as that one later.
    """

    def __init__(
        self, spec: TargetSpec, num_kv_heads: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.block = spec.block_size
        self.length = 0
        self.last_hidden: Tensor | None = None
        """Of the prefix's last token: a shifted prediction of the next block begins with it."""
        self.offered: list[Tensor] = []
        """Hidden states of the last tokens of the offered blocks, which lie 1, 2, ... places behind
        where the next block goes."""
        shape = (spec.num_layers, num_kv_heads, 0, spec.head_dim)
        self.keys = torch.empty(shape, dtype=dtype, device=device)
        self.values = torch.empty(shape, dtype=dtype, device=device)

    def reserve(self, tokens: int) -> None:
        """Make room for ``tokens`` beyond the prefix; where memory grows, scratch is lost (offered
        blocks need no more room than they had)."""
        need = self.length + tokens
        if need <= self.keys.shape[2]:
            return
        capacity = capacity_for(need)
        self.keys = self._grown(self.keys, capacity)
        self.values = self._grown(self.values, capacity)

    def _grown(self, old: Tensor, capacity: int) -> Tensor:
        new = old.new_empty((*old.shape[:2], capacity, old.shape[3]))
        new[:, :, : self.length] = old[:, :, : self.length]
        return new

    def write(self, layer: int, k_TKE: Tensor, v_TKE: Tensor, place: int = 0) -> None:
        """Put one layer's keys and values ``place`` blocks behind the prefix (scratch until
        advanced or adopted)."""
        first = self.length + place * self.block
        end = first + k_TKE.shape[0]
        self.keys[layer, :, first:end] = k_TKE.transpose(0, 1)
        self.values[layer, :, first:end] = v_TKE.transpose(0, 1)

    def view(self, layer: int, extra: int = 0) -> tuple[Tensor, Tensor]:
        """Keys and values ``[K, length + extra, E]`` of one layer, not copied."""
        end = self.length + extra
        return self.keys[layer, :, :end], self.values[layer, :, :end]

    def advance(self, tokens: int, last_hidden: Tensor | None = None) -> None:
        """Count ``tokens`` written tokens, whole blocks only, as part of the prefix."""
        self.last_hidden = last_hidden
        self.offered = []
        assert tokens % self.block == 0, "only full blocks are kept"
        self.length += tokens
        assert self.length <= self.keys.shape[2]

    def adopt(self, index: int) -> None:
        """The ``index``-th offered block becomes the prefix's next one."""
        last_hidden = self.offered[index]
        here = slice(self.length, self.length + self.block)
        first = self.length + (1 + index) * self.block
        for held in (self.keys, self.values):
            held[:, :, here] = held[:, :, first : first + self.block]
        self.advance(self.block, last_hidden)

    def retract(self, length: int) -> None:
        """Forget the prefix from ``length`` on; whole blocks only. What a shifted prediction would
        begin with is not known any more."""
        assert length % self.block == 0, "only full blocks are kept"
        assert length <= self.length
        self.length, self.last_hidden = length, None
