"""Which tokens of a draft the target accepts, and what it puts in the place of the first it does
not (SimSD's acceptance; the rejection rule is that of speculative sampling).

Pure functions over one draft: index i is the i-th drafted token, ``q`` the target's distribution in
its slot, ``p`` the one that it was drawn from.

Shapes: G drafted tokens, V vocabulary.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def acceptance_order(positions: Sequence[int], order: str) -> list[int]:
    """Indices of the drafted tokens in the order in which they are tested."""
    indices = list(range(len(positions)))
    return indices if order == "temporal" else sorted(indices, key=positions.__getitem__)


def accepted_count(order: Sequence[int], accepts: Callable[[int], bool]) -> int:
    """How many tokens are accepted before the first rejection; later ones are never looked at."""
    for count, index in enumerate(order):
        if not accepts(index):
            return count
    return len(order)


def accepts_greedily(tokens: Sequence[int], best: Sequence[int]) -> Callable[[int], bool]:
    """T=0: a token is accepted while it is the target's own."""
    return lambda index: tokens[index] == best[index]


def accepts_by_chance(
    log_q: Sequence[float], log_p: Sequence[float], uniform: Sequence[float]
) -> Callable[[int], bool]:
    """T>0: a token is accepted with probability min(1, q/p); ``uniform`` is in (0, 1)."""
    return lambda index: math.log(uniform[index]) < log_q[index] - log_p[index]


def residual_token(log_q_V: Tensor, log_p_V: Tensor, gumbel_V: Tensor) -> int:
    """A draw from norm(max(0, q - p)), with noise that no draft has seen.

    Where rounding leaves nothing of it (q is p, and nothing should have been rejected) from q.
    """
    left = (log_q_V.double().exp() - log_p_V.double().exp()).clamp(min=0)
    scores = left.log() if float(left.sum()) > 0 else log_q_V.double()
    return int(torch.argmax(scores + gumbel_V))


def uniform_of(gumbel: Tensor) -> list[float]:
    """Uniform numbers in (0, 1) from standard Gumbel noise."""
    return torch.exp(-torch.exp(-gumbel.double())).tolist()
