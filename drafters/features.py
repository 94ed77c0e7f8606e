"""What the order model reads: the target's own stale output distribution, and the path.

Features never hold token ids, embeddings, hidden states or text, so they move between targets and
tokenizers (SPOT section 4.2). Which tokens a distribution names is handed on beside them, for
models that know the vocabulary.

Shapes: B stale states, N drafted states behind each, L block positions, K top probabilities,
C tokens, F features.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

TOP_K = 32
NUM_TOKENS = 8
MAX_BLOCK = 32
NUM_STATIC = 2 * TOP_K + 17
NUM_PATH = 12
STATIC_GROUPS = {
    "top probabilities": slice(0, 2 * TOP_K),
    "entropy, margin, log-odds": slice(2 * TOP_K, 2 * TOP_K + 3),
    "capped order": slice(2 * TOP_K + 3, 2 * TOP_K + 6),
    "gap": slice(2 * TOP_K + 6, 2 * TOP_K + 9),
    "neighbours": slice(2 * TOP_K + 9, 2 * TOP_K + 13),
    "block": slice(2 * TOP_K + 13, NUM_STATIC),
}
"""Columns of :func:`static_features` that belong together."""
PATH_GROUPS = {"fills": slice(0, 5), "path gap": slice(5, 8), "path neighbours": slice(8, NUM_PATH)}
"""Columns of :func:`path_features` that belong together."""
FILLED, SHARE, LEFT = 0, 3, 4
"""Columns of :func:`path_features`: filled since; 1 / (1 + fills); share of masked positions."""

_LOG_FLOOR = -20.0
_SCALE = 10.0
_WIDEST_GAP = 10.0


@dataclass(frozen=True)
class StaleTensors:
    """Stale distributions laid out over the whole block; rows that were not masked hold zeros.

    ``log_probs_BLK`` is padded with -inf where a vocabulary has fewer than K entries; ``ids_BLC``
    are the tokens of its first C entries or, where a position was filled, that token alone, and -1
    where there is none. ``cap_log_odds_B`` is infinite where the commit order is not capped.
    """

    log_probs_BLK: Tensor
    ids_BLC: Tensor
    entropy_BL: Tensor
    log_odds_BL: Tensor
    rank_log_odds_BL: Tensor
    was_masked_BL: Tensor
    prompt_tail_BL: Tensor
    cap_log_odds_B: Tensor


def capped_log_odds(stale: StaleTensors) -> Tensor:
    """What the commit rule compares, ``[B, L]``."""
    return torch.minimum(stale.rank_log_odds_BL, stale.cap_log_odds_B[:, None])


def static_features(stale: StaleTensors) -> Tensor:
    """Features ``[B, L, F]`` that every state behind one stale state shares."""
    log_probs = stale.log_probs_BLK.float().clamp(min=_LOG_FLOOR)
    probs = log_probs.exp()
    cap = stale.cap_log_odds_B[:, None].expand_as(stale.log_odds_BL)
    capped = capped_log_odds(stale)
    masked = stale.was_masked_BL
    rank = _rank(capped.masked_fill(~masked, -math.inf)) / log_probs.shape[1]
    columns = [
        stale.entropy_BL / 4,
        probs[..., 0] - probs[..., 1],
        stale.log_odds_BL.clamp(-_SCALE * 2, _SCALE * 2) / _SCALE,
        capped.clamp(-_SCALE * 2, _SCALE * 2) / _SCALE,
        (stale.rank_log_odds_BL >= cap).float(),
        rank,
        *_gap_columns(gap_to_best(capped, masked)),
        *_neighbours(masked),
    ]
    per_position = torch.cat((probs, log_probs / _SCALE, torch.stack(columns, -1)), dim=-1)
    per_position = per_position.masked_fill(~masked[..., None], 0.0)
    left = masked.float().mean(dim=1, keepdim=True).expand_as(capped)
    flags = [masked, stale.prompt_tail_BL, torch.isfinite(cap), left]
    return torch.cat((per_position, torch.stack([f.float() for f in flags], -1)), dim=-1)


def token_probs(stale: StaleTensors) -> Tensor:
    """The probability of each of ``ids_BLC``: 1 for the token of a filled position."""
    probs = stale.log_probs_BLK[..., :NUM_TOKENS].float().exp()
    probs = probs.masked_fill(~stale.was_masked_BL[..., None], 1.0)
    return probs.masked_fill(stale.ids_BLC < 0, 0.0)


def path_features(capped_BL: Tensor, was_masked_BL: Tensor, masked_BNL: Tensor) -> Tensor:
    """Features ``[B, N, L, F]`` of what was filled since the stale state, as a set: two orders of
    the same fills look the same, so equal states can be folded.

    Among what is left, the stale distance to the most confident position tells best who is next.
    """
    filled = (was_masked_BL[:, None] & ~masked_BNL).float()
    masked = masked_BNL.float()
    count = filled.sum(dim=-1, keepdim=True).expand_as(filled)
    columns = [
        filled,
        masked,
        count / filled.shape[-1],
        1 / (1 + count),
        masked.mean(dim=-1, keepdim=True).expand_as(filled),
        *_gap_columns(gap_to_best(capped_BL[:, None], masked_BNL)),
        *_neighbours(masked_BNL),
    ]
    return torch.stack(columns, dim=-1)


def gap_to_best(capped: Tensor, masked: Tensor) -> Tensor:
    """How far a position's capped log-odds are below the best masked one's, at most 0; bounded, and
    0 where a position is filled. Close races, which a scale of whole log-odds blurs, show here."""
    bounded = capped.clamp(-1e4, 1e4).masked_fill(~masked, -1e5)
    gap = bounded - bounded.amax(dim=-1, keepdim=True)
    return gap.clamp(min=-_WIDEST_GAP).masked_fill(~masked, 0.0)


def _gap_columns(gap: Tensor) -> list[Tensor]:
    return [gap / 3, gap.exp(), (3 * gap).exp()]


def _neighbours(masked: Tensor) -> list[Tensor]:
    """Whether the positions one and two to the left and to the right are masked."""
    open_ = masked.float()
    return [
        F.pad(open_, (1, 0))[..., :-1],
        F.pad(open_, (0, 1))[..., 1:],
        F.pad(open_, (2, 0))[..., :-2],
        F.pad(open_, (0, 2))[..., 2:],
    ]


def _rank(values_BL: Tensor) -> Tensor:
    """0 for the largest value of a row, ties to the lowest position."""
    order = values_BL.argsort(dim=1, descending=True, stable=True)
    ranks = torch.arange(values_BL.shape[1], device=values_BL.device, dtype=torch.float32)
    return torch.empty_like(values_BL, dtype=torch.float32).scatter_(
        1, order, ranks.expand_as(values_BL)
    )
