"""The stale distribution: what the target said about the last accepted state, before its step.

It is all that a proposer may read, and all that a trace must keep (algorithms.md section 3).

Shapes: M masked positions, V vocabulary, K kept entries, H hidden size.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from decoders.rules import Floats, Ints
from decoders.sampling import log_odds
from models.transfer import fetch_later

TOP_PROBABILITIES = 32
TOP_CANDIDATES = 16


@dataclass(frozen=True)
class Stale:
    """Per masked position of one state, positions within the block ascending.

    ``log_probs[M, K]`` are the top raw log-probabilities (untempered, unfiltered) and ``ids`` their
    tokens; ``entropy`` (in nats) and ``log_odds`` of the top-1 come from the whole row.
    ``candidates[M, C]`` are token ids in the order in which the target would draw them now,
    ``scores`` what that order compares: log-probabilities at T=0, filtered log-probabilities plus
    noise at T>0. ``rank_log_odds`` is what the commit rule ranks by (of the top-1 or of the drawn
    token). ``hidden[M, H]`` are the target's last hidden states, kept where a drafter reads them,
    in half precision so that live and recorded ones are the same.
    """

    positions: NDArray[np.int64]
    log_probs: NDArray[np.float32]
    ids: NDArray[np.int64]
    entropy: NDArray[np.float32]
    log_odds: NDArray[np.float32]
    candidates: NDArray[np.int64]
    scores: NDArray[np.float32]
    rank_log_odds: NDArray[np.float32]
    hidden: NDArray[np.float16] | None = None


def summarize(positions: Ints, logits_MV: Tensor, scores_MV: Tensor, ranked: Floats) -> Stale:
    """Keep of one state's rows what drafting needs."""
    return summarize_later(positions, logits_MV, scores_MV, ranked)()


def summarize_later(
    positions: Ints,
    logits_MV: Tensor,
    scores_MV: Tensor,
    rank_log_odds: Floats,
    hidden_MH: Tensor | None = None,
) -> Callable[[], Stale]:
    """:func:`summarize`, begun now; the returned function waits for it."""
    log_probs = torch.log_softmax(logits_MV, dim=1)
    entropy = -(log_probs.exp() * log_probs.nan_to_num(neginf=0.0)).sum(dim=1)
    # The order is that of the logits: rounding can make two of their log-probabilities equal.
    _, ids_MK = top_entries(logits_MV, TOP_PROBABILITIES)
    log_probs_MK = log_probs.gather(1, ids_MK)
    if scores_MV is logits_MV:
        scores, candidates = log_probs_MK[:, :TOP_CANDIDATES], ids_MK[:, :TOP_CANDIDATES]
    else:
        scores, candidates = top_entries(scores_MV, TOP_CANDIDATES)
    top1 = log_odds(logits_MV, logits_MV.argmax(dim=1))
    numbers = [tensor.float() for tensor in (log_probs_MK, entropy, top1, scores)]
    kept = [] if hidden_MH is None else [half(hidden_MH)]
    read = fetch_later(ids_MK, candidates, *numbers, *kept)

    def stale() -> Stale:
        ids, candidates, log_probs, entropy, top1, scores, *hidden = read()
        return Stale(
            positions=np.asarray(positions, dtype=np.int64),
            log_probs=log_probs,
            ids=ids,
            entropy=entropy,
            log_odds=top1,
            candidates=candidates,
            scores=scores,
            rank_log_odds=rank_log_odds.astype(np.float32),
            hidden=hidden[0] if hidden else None,
        )

    return stale


def half(values: Tensor) -> Tensor:
    """In half precision; what lies beyond its range stays at its end."""
    most = torch.finfo(torch.float16).max
    return values.clamp(-most, most).to(torch.float16)


def top_entries(values_MV: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """At most ``most`` largest values of each row and their ids; ties by lowest id, as the target
    draws (``topk`` alone promises no order, and low-precision values often tie)."""
    vocab = values_MV.shape[1]
    most = min(most, vocab)
    top = values_MV.topk(min(most + 1, vocab), dim=1)
    ids = top.indices[:, :most]
    if most < vocab:
        last, left_out = top.values[:, most - 1], top.values[:, most]
        # A CPU looks whether it matters which of equal values were taken; a GPU need not wait.
        if values_MV.is_cuda or bool(((last == left_out) & (last > -math.inf)).any()):
            ids = _lowest_of_equal(values_MV, top.values[:, :most], ids)
    ids, _ = ids.sort(dim=1)
    values, by_value = values_MV.gather(1, ids).sort(dim=1, descending=True, stable=True)
    return values, ids.gather(1, by_value)


def _lowest_of_equal(values_MV: Tensor, top_MK: Tensor, ids_MK: Tensor) -> Tensor:
    """``ids_MK`` of falling ``top_MK``, with the lowest of all ids whose value is the last one."""
    vocab, most = values_MV.shape[1], ids_MK.shape[1]
    least = top_MK[:, -1:]
    falling = torch.arange(vocab, 0, -1, device=ids_MK.device)
    equal = torch.where(values_MV == least, falling, 0).topk(most, dim=1).indices
    place = torch.arange(most, device=ids_MK.device) - (top_MK > least).sum(dim=1, keepdim=True)
    return torch.where(place < 0, ids_MK, equal.gather(1, place.clamp(min=0)))
