"""Attention by parts: each part sees all of its keys, and parts are merged by log-sum-exp.

The copies of one forward share their prefix: all their queries meet it once, nothing is copied per
draft. No part needs a mask, so grouped queries fold into the query dimension.

Shapes: N independent problems, Q queries and S keys of each, H heads, K key/value heads, E head
dimension.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

Part = tuple[Tensor, Tensor]
"""Output ``[N, K, G*Q, E]`` and log-sum-exp ``[N, K, G*Q]`` of one part."""


def fold_groups(q_NQHE: Tensor, num_kv_heads: int) -> Tensor:
    """``[N, Q, H, E] -> [N, K, G*Q, E]``: query heads of one key head become more queries."""
    n, q, _, e = q_NQHE.shape
    grouped = q_NQHE.reshape(n, q, num_kv_heads, -1, e).permute(0, 2, 3, 1, 4)
    return grouped.reshape(n, num_kv_heads, -1, e)


def unfold_groups(out: Tensor, num_queries: int) -> Tensor:
    """The inverse of :func:`fold_groups`."""
    n, k, gq, e = out.shape
    split = out.view(n, k, gq // num_queries, num_queries, e).permute(0, 3, 1, 2, 4)
    return split.reshape(n, num_queries, -1, e)


def attend_part(q: Tensor, k: Tensor, v: Tensor) -> Part:
    """All queries against all keys of one part: ``q[N,K,Q,E]``, ``k, v[N,K,S,E]``."""
    if q.device.type == "cpu":
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v)
    return attend_part_reference(q, k, v)


def attend_part_reference(q: Tensor, k: Tensor, v: Tensor) -> Part:
    """:func:`attend_part` in plain tensor operations, on any device."""
    scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
    lse = torch.logsumexp(scores.float() if scores.dtype != torch.float64 else scores, dim=-1)
    weights = torch.exp(scores - lse[..., None].to(scores.dtype))
    return torch.matmul(weights, v), lse


def merge_parts(parts: list[Part]) -> Tensor:
    """Softmax attention over the union of the parts' keys."""
    if len(parts) == 1:
        return parts[0][0]
    lses = torch.stack([lse for _, lse in parts])
    weights = torch.softmax(lses, dim=0).unsqueeze(-1)
    merged = torch.stack([out for out, _ in parts]).mul(weights).sum(dim=0)
    return merged.to(parts[0][0].dtype)


def attend_masked(q_QHE: Tensor, k_KSE: Tensor, v_KSE: Tensor, mask_QS: Tensor | None) -> Tensor:
    """Plain attention of one sequence under a boolean mask (``None``: everything is seen)."""
    folded = fold_groups(q_QHE.unsqueeze(0), k_KSE.shape[0])
    if mask_QS is not None:
        mask_QS = mask_QS.repeat(folded.shape[2] // q_QHE.shape[0], 1)
    out = F.scaled_dot_product_attention(
        folded, k_KSE.unsqueeze(0), v_KSE.unsqueeze(0), attn_mask=mask_QS
    )
    return unfold_groups(out, q_QHE.shape[0]).squeeze(0)
