"""The stale distribution: what the target said about the last accepted state, before its step.

It is all that a proposer may read, and all that a trace must keep (algorithms.md section 3).

Shapes: M masked positions, V vocabulary, K kept entries.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from decoders.rules import Floats, Ints

TOP_PROBABILITIES = 32
TOP_CANDIDATES = 8


@dataclass(frozen=True)
class Stale:
    """Per masked position of one state, positions within the block ascending.

    ``log_probs[M, K]`` are the top raw log-probabilities (untempered, unfiltered) and ``ids`` their
    tokens; ``entropy`` (in nats) and ``log_odds`` of the top-1 come from the whole row.
    ``candidates[M, C]`` are token ids in the order in which the target would draw them now,
    ``scores`` what that order compares: log-probabilities at T=0, filtered log-probabilities plus
    noise at T>0. ``rank_log_odds`` is what the commit rule ranks by (of the top-1 or of the drawn
    token).
    """

    positions: NDArray[np.int64]
    log_probs: NDArray[np.float32]
    ids: NDArray[np.int64]
    entropy: NDArray[np.float32]
    log_odds: NDArray[np.float32]
    candidates: NDArray[np.int64]
    scores: NDArray[np.float32]
    rank_log_odds: NDArray[np.float32]


def summarize(
    positions: Ints, logits_MV: Tensor, scores_MV: Tensor, log_odds: Floats, rank_log_odds: Floats
) -> Stale:
    """Keep of one state's rows what drafting needs."""
    vocab = logits_MV.shape[1]
    log_probs = torch.log_softmax(logits_MV, dim=1)
    entropy = -(log_probs.exp() * log_probs.nan_to_num(neginf=0.0)).sum(dim=1)
    raw = log_probs.topk(min(TOP_PROBABILITIES, vocab), dim=1)
    if scores_MV is logits_MV:
        candidates, scores = raw.indices[:, :TOP_CANDIDATES], raw.values[:, :TOP_CANDIDATES]
    else:
        drawn = scores_MV.topk(min(TOP_CANDIDATES, vocab), dim=1)
        candidates, scores = drawn.indices, drawn.values
    return Stale(
        positions=np.asarray(positions, dtype=np.int64),
        log_probs=raw.values.float().cpu().numpy(),
        ids=raw.indices.cpu().numpy(),
        entropy=entropy.float().cpu().numpy(),
        log_odds=log_odds.astype(np.float32),
        candidates=candidates.cpu().numpy(),
        scores=scores.float().cpu().numpy(),
        rank_log_odds=rank_log_odds.astype(np.float32),
    )
