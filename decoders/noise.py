"""The shared Gumbel noise: a pure function of (seed, absolute position, token id).

A counter-based hash (Philox4x32-10) makes the same bits on every device, in replay and on every
tensor-parallel rank, so that drafts and verifier draw the same tokens (SPOT section 4.3).
"""

from hashlib import blake2b

import torch
from torch import Tensor

from models.spec import TargetSpec

_MASK32 = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def philox4x32(
    key: tuple[int, int], counter: tuple[Tensor, Tensor, Tensor, Tensor]
) -> list[Tensor]:
    """Four 32-bit words (as int64) for each counter; int64 products wrap, which keeps all bits."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        high0, low0 = (p0 >> 32) & _MASK32, p0 & _MASK32
        high1, low1 = (p1 >> 32) & _MASK32, p1 & _MASK32
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + _WEYL[0]) & _MASK32, (k1 + _WEYL[1]) & _MASK32
    return [c0, c1, c2, c3]


def gumbel_table(seed: int, start: int, length: int, vocab_size: int, device=None) -> Tensor:
    """``G[position, v]`` float32 ``[length, vocab_size]`` for absolute positions from ``start``."""
    seed %= 1 << 64
    groups = torch.arange(-(-vocab_size // 4), dtype=torch.int64, device=device)[None, :]
    positions = torch.arange(start, start + length, dtype=torch.int64, device=device)[:, None]
    zero = torch.zeros((), dtype=torch.int64, device=device)
    counter = (*torch.broadcast_tensors(groups, positions), zero, zero)
    words = torch.stack(philox4x32((seed & _MASK32, seed >> 32), counter), dim=-1)
    uniform = (words.flatten(1)[:, :vocab_size].double() + 0.5) / 2.0**32
    return -torch.log(-torch.log(uniform)).float()


def row_seed(seed: int, row_id: str) -> int:
    """The noise seed of a prompt row without a ``seed`` field: never its place in the file."""
    return int.from_bytes(blake2b(f"{seed}:{row_id}".encode(), digest_size=8).digest(), "little")


class NoiseTables:
    """The noise tables ``[L, V]`` of one request's blocks.

    Coupled, there is one for a whole block, which is kept. Uncoupled, it depends on the number of
    fills, so that each step draws anew and a run is still a function of its seed.
    """

    def __init__(self, spec: TargetSpec, seed: int, coupled: bool) -> None:
        self.spec, self.seed, self.coupled = spec, seed, coupled
        self._kept: dict[int, Tensor] = {}

    def table(self, start: int, state: tuple[int, ...], device: torch.device) -> Tensor:
        """What ``state`` of the block at ``start`` is drawn with."""
        size = (start, self.spec.block_size, self.spec.vocab_size)
        if not self.coupled:
            fills = start + len(state) - state.count(self.spec.mask_token_id)
            return gumbel_table(row_seed(self.seed, f"fills {fills}"), *size, device)
        if start not in self._kept:
            self._kept[start] = gumbel_table(self.seed, *size, device)
        return self._kept[start]

    def forget(self, start: int) -> None:
        """Let go of a block that is decoded."""
        self._kept.pop(start, None)
