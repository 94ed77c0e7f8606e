"""Turning answers into noised training blocks.

Shapes: B samples, T tokens of a sample (a multiple of L), N noised blocks a sample, L block size.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

_JITTER = 0.3
"""How much chance is mixed into the left-to-right order of a leaning view."""


@dataclass(frozen=True)
class Sample:
    """One training text: ``prompt`` ids are never noised, ``answer`` ids (stop id included) are."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]

    def num_blocks(self, block: int) -> int:
        return -(-(len(self.prompt) + len(self.answer)) // block)


@dataclass(frozen=True)
class NoisedBatch:
    """What one training forward needs (see :func:`models.doubled.doubled_hidden`)."""

    clean_BT: Tensor
    noisy_BNL: Tensor
    blocks_BN: Tensor
    targets_BNL: Tensor
    weights_BNL: Tensor
    """Loss weight of each noisy position, 0 where nothing was masked; sums to 1."""


def noised_batch(
    samples: list[Sample],
    length: int,
    num_noisy: int,
    block: int,
    mask_id: int,
    pad_id: int,
    generator: torch.Generator,
    ordered_share: float = 0.0,
) -> NoisedBatch:
    """Pad ``samples`` to ``length`` tokens and draw ``num_noisy`` noised blocks of each.

    Every sample's blocks that hold answer tokens are taken in turn. A view masks m of the block's
    n answer positions, m uniform on 1..n, and weighs each masked position 1/m: the objective of
    SDAR (weight 1/p_mask) with the mask ratio drawn without its variance in m. The padding up to
    the sample's block end is learnt like the answer; later padding is never seen. In a share
    ``ordered_share`` of the views the m positions lean to the block's end, as they do in the states
    that decoding visits; in the others they are uniformly random.
    """
    assert length % block == 0
    clean_BT = torch.full((len(samples), length), pad_id)
    learnt_BT = torch.zeros(len(samples), length, dtype=torch.bool)
    blocks_BN = torch.zeros(len(samples), num_noisy, dtype=torch.long)
    for row, sample in enumerate(samples):
        ids = sample.prompt + sample.answer
        clean_BT[row, : len(ids)] = torch.tensor(ids)
        end = sample.num_blocks(block) * block
        learnt_BT[row, len(sample.prompt) : end] = True
        first = len(sample.prompt) // block
        offset = int(torch.randint(end // block - first, (), generator=generator))
        turn = torch.arange(num_noisy) + offset
        blocks_BN[row] = first + turn % (end // block - first)

    targets_BNL = _gather_blocks(clean_BT, blocks_BN, block)
    learnt_BNL = _gather_blocks(learnt_BT, blocks_BN, block)
    masked_BNL = _mask_uniform_count(learnt_BNL, ordered_share, generator)
    num_masked = masked_BNL.sum(-1, keepdim=True)
    weights_BNL = masked_BNL / num_masked / (len(samples) * num_noisy)
    noisy_BNL = targets_BNL.masked_fill(masked_BNL, mask_id)
    return NoisedBatch(clean_BT, noisy_BNL, blocks_BN, targets_BNL, weights_BNL)


def _gather_blocks(rows_BT: Tensor, blocks_BN: Tensor, block: int) -> Tensor:
    """The blocks ``blocks_BN`` of each row: ``[B, N, L]``."""
    blocks_BTL = rows_BT.unflatten(1, (-1, block))
    return blocks_BTL.gather(1, blocks_BN[..., None].expand(-1, -1, block))


def _mask_uniform_count(
    allowed_BNL: Tensor, ordered_share: float, generator: torch.Generator
) -> Tensor:
    """A random non-empty subset of the allowed positions, its size uniform on 1..count."""
    count = allowed_BNL.sum(-1, keepdim=True)
    size = (torch.rand(count.shape, generator=generator) * count).floor().long() + 1
    order = torch.rand(allowed_BNL.shape, generator=generator)
    leaning = torch.rand(count.shape, generator=generator) < ordered_share
    from_end = torch.linspace(1, 0, allowed_BNL.shape[-1])
    order = torch.where(leaning, _JITTER * order + (1 - _JITTER) * from_end, order)
    rank = order.masked_fill(~allowed_BNL, 2.0).argsort(-1).argsort(-1)
    return allowed_BNL & (rank < size)
