"""Training a drafter: the configuration, the optimizers and the loop that all drafters share."""

from collections.abc import Callable, Mapping
from typing import Annotated

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from models.descent import descend

Count = Annotated[int, Field(ge=1)]
Report = Callable[[dict], None]
Save = Callable[[int], None]
"""Keeps the weights that stand after so many steps."""

CLIP_NORM = 1.0


class DrafterTrainingConfig(BaseModel):
    """How to train; each drafter's own configuration gives the defaults that differ."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    seed: int = 0
    steps: Count
    batch_size: Count
    """Stale states of a step."""
    learning_rate: Annotated[float, Field(gt=0)]
    warmup: Count = 50
    weight_decay: float = 0.01
    log_every: Count


def keep_nothing(step: int) -> None:
    """The :data:`Save` of a training that nobody will resume."""


def optimizers(
    trained: Mapping[str, nn.Parameter], config: DrafterTrainingConfig
) -> list[torch.optim.Optimizer]:
    """Muon for the encoder's matrices, AdamW for all else: the loss that AdamW alone reaches in 600
    steps takes an order model half of them."""
    hidden = {name for name, p in trained.items() if name.startswith("encoder.") and p.dim() == 2}
    matrices = [p for name, p in trained.items() if name in hidden]
    others = [p for name, p in trained.items() if name not in hidden]
    rate, decay = config.learning_rate, config.weight_decay
    found: list[torch.optim.Optimizer] = [torch.optim.AdamW(others, lr=rate, weight_decay=decay)]
    if matrices:
        muon = torch.optim.Muon
        found.append(muon(matrices, lr=rate, weight_decay=decay, adjust_lr_fn="match_rms_adamw"))
    return found


def learning_rate_at(step: int, config: DrafterTrainingConfig) -> float:
    """Warm-up, times a cosine that falls to zero."""
    warm = min(1.0, (step + 1) / config.warmup)
    return config.learning_rate * warm * 0.5 * (1 + float(np.cos(np.pi * step / config.steps)))


def train(
    model: nn.Module,
    trained: Mapping[str, nn.Parameter],
    loss_of: Callable[[np.random.Generator], Tensor],
    config: DrafterTrainingConfig,
    report: Report,
    first_step: int,
    save: Save,
) -> None:
    """Minimise the loss of random batches over the ``trained`` ones of the model's parameters.

    Every step's batch follows from seed and step alone, so that a resumed training sees what an
    uninterrupted one would. ``report`` gets the mean loss since the last report, whenever ``save``
    is asked to keep what was learnt.
    """
    chosen = optimizers(trained, config)
    losses: list[float] = []
    model.train()
    for step in range(first_step, config.steps):
        loss = loss_of(np.random.default_rng((config.seed, step)))
        # In the model's own order: the last bits of the clipped norm, a sum, depend on it.
        descend(loss, list(trained.values()), chosen, learning_rate_at(step, config), CLIP_NORM)
        losses.append(loss.item())
        if (step + 1) % config.log_every == 0 or step + 1 == config.steps:
            report({"step": step + 1, "of": config.steps, "loss": sum(losses) / len(losses)})
            losses = []
            save(step + 1)
    model.eval()
