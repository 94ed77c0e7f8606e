"""From logits to what a commit rule reads: the token at each position and its confidence.

Shapes: R rows (masked positions of all copies), V vocabulary. All functions take logits in fp32 or
fp64 with the mask token already at -inf.
"""

import math

import torch
from torch import Tensor


def suppress_mask_token(logits_RV: Tensor, mask_token_id: int) -> Tensor:
    """The mask token can never be chosen, in drafting or in verifying (in place)."""
    logits_RV[:, mask_token_id] = -math.inf
    return logits_RV


def log_odds(logits_RV: Tensor, tokens_R: Tensor) -> Tensor:
    """``log p - log(1-p)`` of one token a row, as a difference of log-sum-exps: probabilities near
    1 saturate in fp32, log-odds do not."""
    index = tokens_R[:, None]
    chosen = logits_RV.gather(1, index).squeeze(1)
    return chosen - torch.logsumexp(logits_RV.scatter(1, index, -math.inf), dim=1)


def filtered_scores(logits_RV: Tensor, temperature: float, top_k: int, top_p: float) -> Tensor:
    """Log-probabilities after temperature, then top-k, then top-p; ``temperature`` > 0."""
    scores = logits_RV / temperature
    if 0 < top_k < scores.shape[1]:
        threshold = scores.topk(top_k, dim=1).values[:, -1:]
        scores = scores.masked_fill(scores < threshold, -math.inf)
    if top_p < 1:
        sorted_scores, order = scores.sort(dim=1, descending=True, stable=True)
        before = torch.softmax(sorted_scores, dim=1).cumsum(dim=1).roll(1, dims=1)
        before[:, 0] = -1  # the likeliest stays, also where top_p rounds to 0 in fp32
        drop = torch.empty_like(before, dtype=torch.bool).scatter_(1, order, before >= top_p)
        scores = scores.masked_fill(drop, -math.inf)
    return torch.log_softmax(scores, dim=1)


def perturbed_scores(
    logits_RV: Tensor, gumbel_RV: Tensor | None, temperature: float, top_k: int, top_p: float
) -> Tensor:
    """What the sampled token is the argmax of: logits at T=0, filtered scores plus noise at T>0."""
    if temperature == 0:
        return logits_RV
    assert gumbel_RV is not None
    return filtered_scores(logits_RV, temperature, top_k, top_p) + gumbel_RV
