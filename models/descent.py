"""One step of the optimizers down a loss, the same in every training."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def descend(
    loss: Tensor,
    parameters: Sequence[nn.Parameter],
    optimizers: Sequence[torch.optim.Optimizer],
    rate: float,
    clip_norm: float,
) -> None:
    """Move ``parameters``, which the ``optimizers`` share out among themselves, at the learning
    rate ``rate``; their gradients are clipped to ``clip_norm`` together, and gone afterwards.
    """
    loss.backward(inputs=list(parameters))
    nn.utils.clip_grad_norm_(parameters, clip_norm)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
