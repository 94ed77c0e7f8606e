"""Attention by parts: each part sees all of its keys, and parts are merged by log-sum-exp.

The copies of one forward share their prefix: all their queries meet it once, nothing is copied per
draft. No part needs a mask, so grouped queries fold into the query dimension.

Shapes: N independent problems, C copies, Q queries and S keys of each, P prefix, H heads, K
key/value heads, E head dimension.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

LARGEST_HEAD = 256
"""Of the flash kernel on CUDA; it also wants a multiple of eight."""

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
    """All queries against all keys of one part: ``q[N,K,Q,E]``, ``k, v[N,K,S,E]``.

    A flash kernel where there is one for the inputs (:func:`takes_flash`), else plain operations.
    """
    if q.device.type == "cpu":
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v)
    if takes_flash(q):
        out, lse, *_ = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v)
        return out, lse
    return attend_part_reference(q, k, v)


def takes_flash(q: Tensor) -> bool:
    """Half precision on CUDA, with heads that the kernel has: fp32 and fp64 take the plain way."""
    half = q.dtype in (torch.bfloat16, torch.float16)
    return q.is_cuda and half and q.shape[-1] <= LARGEST_HEAD and q.shape[-1] % 8 == 0


def attend_part_reference(q: Tensor, k: Tensor, v: Tensor) -> Part:
    """:func:`attend_part` in plain tensor operations, on any device; in fp32 at least, as kernels
    accumulate: weights of rounded scores would be off by whole percents."""
    wide = torch.promote_types(q.dtype, torch.float32)
    scores = torch.matmul(q.to(wide), k.to(wide).transpose(-1, -2)) / math.sqrt(q.shape[-1])
    lse = torch.logsumexp(scores, dim=-1)
    weights = torch.exp(scores - lse[..., None])
    return torch.matmul(weights, v.to(wide)).to(q.dtype), lse


def merge_parts(parts: list[Part]) -> Tensor:
    """Softmax attention over the union of the parts' keys."""
    if len(parts) == 1:
        return parts[0][0]
    lses = torch.stack([lse for _, lse in parts])
    weights = torch.softmax(lses, dim=0).unsqueeze(-1)
    merged = torch.stack([out for out, _ in parts]).mul(weights).sum(dim=0)
    return merged.to(parts[0][0].dtype)


def attend_shared(q_CQHE: Tensor, k_KPE: Tensor, v_KPE: Tensor) -> Part:
    """All copies' queries against one prefix that they share and that is not copied: every copy's
    part ``[C, K, G*Q, E]``, ``[C, K, G*Q]``, to be merged with its own."""
    copies, num_queries = q_CQHE.shape[:2]
    num_kv = k_KPE.shape[0]
    queries = fold_groups(q_CQHE.flatten(0, 1).unsqueeze(0), num_kv)
    out, lse = attend_part(queries, k_KPE.unsqueeze(0), v_KPE.unsqueeze(0))
    # [1, K, G*C*Q] -> [C, K, G*Q]
    shape = (num_kv, -1, copies, num_queries)
    out = out.reshape(*shape, out.shape[-1]).permute(2, 0, 1, 3, 4).flatten(2, 3)
    return out, lse.reshape(shape).permute(2, 0, 1, 3).flatten(2, 3)


def attend_behind(
    q_CQHE: Tensor, before_KPE: Tensor, values_KPE: Tensor, k_CKQE: Tensor, v_CKQE: Tensor
) -> Tensor:
    """Every position of a copy sees all of the copy, and the prefix ``before`` all copies."""
    copies, num_queries = q_CQHE.shape[:2]
    folded = fold_groups(q_CQHE, k_CKQE.shape[1])
    if before_KPE.shape[1] and copies > 1:
        shared = attend_shared(q_CQHE, before_KPE, values_KPE)
        return unfold_groups(
            merge_parts([shared, attend_part(folded, k_CKQE, v_CKQE)]), num_queries
        )
    if before_KPE.shape[1]:
        k_CKQE = torch.cat((before_KPE.unsqueeze(0), k_CKQE), dim=2)
        v_CKQE = torch.cat((values_KPE.unsqueeze(0), v_CKQE), dim=2)
    out = F.scaled_dot_product_attention(folded, k_CKQE, v_CKQE)
    return unfold_groups(out, num_queries)


def attend_masked(q_QHE: Tensor, k_KSE: Tensor, v_KSE: Tensor, mask_QS: Tensor | None) -> Tensor:
    """Plain attention of one sequence under a boolean mask (``None``: everything is seen)."""
    folded = fold_groups(q_QHE.unsqueeze(0), k_KSE.shape[0])
    if mask_QS is not None:
        assert mask_QS.dtype == torch.bool, "a boolean mask: one of numbers would be added"
        mask_QS = mask_QS.repeat(folded.shape[2] // q_QHE.shape[0], 1)
    out = F.scaled_dot_product_attention(
        folded, k_KSE.unsqueeze(0), v_KSE.unsqueeze(0), attn_mask=mask_QS
    )
    return unfold_groups(out, q_QHE.shape[0]).squeeze(0)
