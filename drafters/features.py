"""What the order model reads: the target's own stale output distribution, and the path.

Never token ids, embeddings, hidden states or text, so the model moves between targets and
tokenizers (SPOT section 4.2).

Shapes: B stale states, N path nodes, L block positions, K top probabilities, F features.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

TOP_K = 32
MAX_BLOCK = 32
NUM_STATIC = 2 * TOP_K + 9
NUM_PATH = 4

_LOG_FLOOR = -20.0
_SCALE = 10.0


@dataclass(frozen=True)
class StaleTensors:
    """Stale distributions laid out over the whole block; rows that were not masked hold zeros.

    ``log_probs_BLK`` is padded with -inf where a vocabulary has fewer than K entries;
    ``cap_log_odds_B`` is infinite where the commit order is not capped.
    """

    log_probs_BLK: Tensor
    entropy_BL: Tensor
    log_odds_BL: Tensor
    rank_log_odds_BL: Tensor
    was_masked_BL: Tensor
    prompt_tail_BL: Tensor
    cap_log_odds_B: Tensor


def static_features(stale: StaleTensors) -> Tensor:
    """Features ``[B, L, F]`` that every node behind one stale state shares."""
    log_probs = stale.log_probs_BLK.float().clamp(min=_LOG_FLOOR)
    probs = log_probs.exp()
    cap = stale.cap_log_odds_B[:, None].expand_as(stale.log_odds_BL)
    capped = torch.minimum(stale.rank_log_odds_BL, cap)
    masked = stale.was_masked_BL
    rank = _rank(capped.masked_fill(~masked, -math.inf)) / log_probs.shape[1]
    columns = [
        stale.entropy_BL / 4,
        probs[..., 0] - probs[..., 1],
        stale.log_odds_BL.clamp(-_SCALE * 2, _SCALE * 2) / _SCALE,
        capped.clamp(-_SCALE * 2, _SCALE * 2) / _SCALE,
        (stale.rank_log_odds_BL >= cap).float(),
        rank,
    ]
    per_position = torch.cat((probs, log_probs / _SCALE, torch.stack(columns, -1)), dim=-1)
    per_position = per_position.masked_fill(~masked[..., None], 0.0)
    flags = [masked, stale.prompt_tail_BL, torch.isfinite(cap)]
    return torch.cat((per_position, torch.stack([f.float() for f in flags], -1)), dim=-1)


def path_features(was_masked_NL: Tensor, masked_now_NL: Tensor) -> Tensor:
    """Features ``[N, L, F]`` of what was filled since the stale state, as a set: two orders of the
    same fills look the same, so equal states can be folded."""
    filled = (was_masked_NL & ~masked_now_NL).float()
    length = filled.shape[1]
    num_filled = filled.sum(dim=1, keepdim=True).expand_as(filled) / length
    num_left = masked_now_NL.float().sum(dim=1, keepdim=True).expand_as(filled) / length
    return torch.stack((filled, masked_now_NL.float(), num_filled, num_left), dim=-1)


def _rank(values_BL: Tensor) -> Tensor:
    """0 for the largest value of a row, ties to the lowest position."""
    order = values_BL.argsort(dim=1, descending=True, stable=True)
    ranks = torch.arange(values_BL.shape[1], device=values_BL.device, dtype=torch.float32)
    return torch.empty_like(values_BL, dtype=torch.float32).scatter_(
        1, order, ranks.expand_as(values_BL)
    )
