"""The doubled [clean | noisy] training forward of block-causal diffusion models.

The clean half is block-causal. Each noisy block sees itself and the strictly earlier clean blocks,
and shares its position ids with its clean twin (SDAR's objective). Only the noisy blocks that hold
something to learn are forwarded, several noised views of each beside one clean pass, and attention
is computed by parts, so that nothing is spent on pairs that the mask would forbid.

Shapes: B samples, T clean tokens (a multiple of L), N noisy blocks a sample, L block size,
H heads, K key/value heads, G = H / K, E head dimension.
"""

import math

import torch
from torch import Tensor

from models.transformer import Attend, Transformer


def doubled_hidden(
    model: Transformer, clean_BT: Tensor, noisy_BNL: Tensor, blocks_BN: Tensor
) -> Tensor:
    """Hidden states ``[B, N, L, D]`` of noisy blocks.

    ``blocks_BN`` says which block of the clean sequence each noisy block is a view of.
    """
    (batch, length), (_, num_noisy, block) = clean_BT.shape, noisy_BNL.shape
    within = torch.arange(block, device=clean_BT.device)
    positions_noisy = (blocks_BN[..., None] * block + within).flatten(1)
    positions_clean = torch.arange(length, device=clean_BT.device).expand(batch, -1)
    tokens = torch.cat((clean_BT, noisy_BNL.flatten(1)), dim=1)
    positions = torch.cat((positions_clean, positions_noisy), dim=1)
    attend = _attend_by_parts(blocks_BN, length, block)
    hidden = model.hidden(tokens, positions, attend)
    return hidden[:, length:].unflatten(1, (num_noisy, block))


def _attend_by_parts(blocks_BN: Tensor, length: int, block: int) -> Attend:
    """Attention over [clean | noisy] rows without forming the full mask."""
    clean_block = torch.arange(length, device=blocks_BN.device) // block
    block_causal_TT = clean_block[:, None] >= clean_block[None, :]
    earlier_BNT = clean_block < blocks_BN[..., None]

    def attend(_layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        heads_kv = k.shape[2]
        q = q.unflatten(2, (heads_kv, -1)).permute(0, 2, 3, 1, 4) / math.sqrt(q.shape[-1])
        k, v = k.transpose(1, 2), v.transpose(1, 2)
        clean = _clean_rows(q[..., :length, :], k[..., :length, :], v[..., :length, :])
        noisy = _noisy_rows(q[..., length:, :], k, v)
        return torch.cat((clean, noisy), dim=3).permute(0, 3, 1, 2, 4).flatten(2, 3)

    def _clean_rows(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = torch.matmul(q, k.unsqueeze(2).transpose(-1, -2))
        scores = scores.masked_fill(~block_causal_TT, -math.inf)
        return torch.matmul(torch.softmax(scores, dim=-1), v.unsqueeze(2))

    def _noisy_rows(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        past_k, past_v = k[..., :length, :].unsqueeze(2), v[..., :length, :].unsqueeze(2)
        own_k = k[..., length:, :].unflatten(2, (-1, block)).unsqueeze(2)
        own_v = v[..., length:, :].unflatten(2, (-1, block)).unsqueeze(2)
        q_blocks = q.unflatten(3, (-1, block))
        past = torch.matmul(q, past_k.transpose(-1, -2)).unflatten(3, (-1, block))
        past = past.masked_fill(~earlier_BNT[:, None, None, :, None, :], -math.inf)
        own = torch.matmul(q_blocks, own_k.transpose(-1, -2))
        weights = torch.softmax(torch.cat((past, own), dim=-1), dim=-1)
        from_past = torch.matmul(weights[..., :length].flatten(3, 4), past_v)
        from_own = torch.matmul(weights[..., length:], own_v).flatten(3, 4)
        return from_past + from_own

    return attend
