"""Attention of packed problems of different lengths, in fixed shapes and without asking the device.

Every problem has a run of query rows and a run of key rows; runs of keys may lie anywhere, in any
order, and may be shared. How many keys count is read on the device, so that a CUDA graph can be
replayed while prefixes grow.

Shapes: T query rows of all problems, R key rows, N problems, H heads, K key/value heads, E head
dimension.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.attention.varlen import AuxRequest, varlen_attn

from models.attention import takes_flash

Packed = tuple[Tensor, Tensor]
"""Output ``[T, H, E]`` and log-sum-exp ``[T, H]``, -inf where a query meets no key."""


@dataclass(frozen=True)
class Problems:
    """Who meets whom: problem n has the query rows ``q_ends[n]`` to ``q_ends[n + 1]`` (ascending)
    and ``used[n]`` key rows from ``k_starts[n]`` on. All are int32 on the device.

    ``k_starts`` has one entry more than there are problems, which nothing reads. ``empty_T`` marks
    queries that meet no key, ``None`` when there are none. ``max_q`` and ``max_k`` bound the runs.
    """

    q_ends: Tensor
    k_starts: Tensor
    used: Tensor
    empty_T: Tensor | None
    max_q: int
    max_k: int


def attend_ragged(q_THE: Tensor, k_RKE: Tensor, v_RKE: Tensor, problems: Problems) -> Packed:
    """Softmax attention of every query over the keys of its problem.

    The flash kernel where it takes the inputs (:func:`takes_flash`), else plain operations.
    """
    if takes_flash(q_THE):
        return _attend_flash(q_THE, k_RKE, v_RKE, problems)
    return attend_ragged_reference(q_THE, k_RKE, v_RKE, problems)


def _attend_flash(q_THE: Tensor, k_RKE: Tensor, v_RKE: Tensor, problems: Problems) -> Packed:
    out, lse_HT = varlen_attn(
        q_THE,
        k_RKE,
        v_RKE,
        problems.q_ends,
        problems.k_starts,
        # Runs of one query make the kernel assume that there is one query a problem.
        max(2, problems.max_q),
        problems.max_k,
        return_aux=AuxRequest(lse=True),
        enable_gqa=True,
        seqused_k=problems.used,
    )
    lse = lse_HT.transpose(0, 1)
    if problems.empty_T is not None:
        # Of queries without keys the kernel says +inf.
        lse = lse.masked_fill(problems.empty_T[:, None], -math.inf)
    return out, lse


def attend_ragged_reference(
    q_THE: Tensor, k_RKE: Tensor, v_RKE: Tensor, problems: Problems
) -> Packed:
    """:func:`attend_ragged` in plain tensor operations on problems padded to the longest one, on
    any device and in any precision."""
    device, heads = q_THE.device, q_THE.shape[1]
    first_q, last_q = problems.q_ends[:-1].long(), problems.q_ends[1:].long()
    rows_NQ = first_q[:, None] + torch.arange(problems.max_q, device=device)
    keys_NS = problems.k_starts[:-1].long()[:, None] + torch.arange(problems.max_k, device=device)
    counts_NS = torch.arange(problems.max_k, device=device) < problems.used[:, None]
    keys_NS = keys_NS.masked_fill(~counts_NS, 0)

    def padded(rows_RKE: Tensor) -> Tensor:
        """``[N, K, 1, S, E]``; what does not count is zero, whatever lies there."""
        picked = rows_RKE[keys_NS].masked_fill(~counts_NS[:, :, None, None], 0)
        return picked.transpose(1, 2).unsqueeze(2)

    k, v = padded(k_RKE), padded(v_RKE)
    picked = q_THE[rows_NQ.clamp(max=len(q_THE) - 1)]
    q_NKGQE = picked.transpose(1, 2).unflatten(1, (k.shape[1], -1))
    scores = q_NKGQE @ k.transpose(-1, -2) / math.sqrt(q_THE.shape[-1])
    wide = torch.float64 if scores.dtype == torch.float64 else torch.float32
    scores = scores.to(wide).masked_fill(~counts_NS[:, None, None, None], -math.inf)
    lse = torch.logsumexp(scores, dim=-1)
    weights = torch.exp(scores - lse.nan_to_num(neginf=0.0)[..., None])
    out = (weights.to(v.dtype) @ v).flatten(1, 2).transpose(1, 2)
    lse = lse.flatten(1, 2).transpose(1, 2)
    # Back from [N, Q] to rows: the problem of a row is the last one that begins at or before it.
    row_T = torch.arange(len(q_THE), device=device)
    problem_T = torch.searchsorted(last_q, row_T, right=True).clamp(max=len(last_q) - 1)
    place_T = (row_T - first_q[problem_T]).clamp(0, problems.max_q - 1)
    assert out.shape[2] == heads
    return out[problem_T, place_T], lse[problem_T, place_T]


def merge_packed(parts: Sequence[Packed]) -> Tensor:
    """Attention ``[T, H, E]`` over the union of the parts' keys; a query without any gets zeros."""
    if len(parts) == 1:
        return parts[0][0]
    lses = torch.stack([lse for _, lse in parts])
    weights = torch.exp(lses - torch.logsumexp(lses, dim=0).nan_to_num(neginf=0.0))
    merged = torch.stack([out for out, _ in parts]).mul(weights.unsqueeze(-1)).sum(dim=0)
    return merged.to(parts[0][0].dtype)
