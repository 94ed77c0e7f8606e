"""What the target said of the tokens that it committed: their log-probabilities, on request.

They are those of the state that a token was committed from, untempered and unfiltered, with the
mask token at -inf: what confidence is read from (contracts.md).

Shapes: R rows, one a commit; V vocabulary.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from decoders.request import TokenLogprob
from decoders.stale import top_entries
from models.transfer import fetch_later


def read_logprobs(logits_RV: Tensor, tokens: Sequence[int], most: int) -> list[TokenLogprob]:
    """One entry a row, with at most ``most`` alternatives."""
    exact = logits_RV if logits_RV.dtype == torch.float64 else logits_RV.float()
    log_probs = torch.log_softmax(exact, dim=1)
    index = torch.tensor(tokens, device=logits_RV.device)[:, None]
    # The order is that of the logits: rounding can make two of their log-probabilities equal.
    _, ids = top_entries(exact, max(1, most))
    asked = log_probs.gather(1, torch.cat((index, ids), dim=1))
    values, ids = fetch_later(asked, ids)()
    return [
        TokenLogprob(token, logprob, possible(top[:most], scores))
        for token, (logprob, *scores), top in zip(
            tokens, values.tolist(), ids.tolist(), strict=True
        )
    ]


def possible(ids: Sequence[int], log_probs: Sequence[float]) -> tuple[tuple[int, float], ...]:
    """Tokens with their log-probabilities, without those that cannot be (the mask token)."""
    pairs = zip(ids, log_probs, strict=False)
    return tuple((token, value) for token, value in pairs if value > -math.inf)
