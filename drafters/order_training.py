"""Training the order model on true path prefixes, and measuring it by depth."""

from collections.abc import Callable

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor
from torch.nn import functional as F

from drafters.features import static_features
from drafters.order_data import OrderBatch, OrderData, batch_of, draw_batch
from drafters.order_model import OrderModel


class OrderTrainingConfig(BaseModel):
    """How to train; ``max_depth`` is the longest path prefix, in commits."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = 0
    steps: int = 4000
    batch_size: int = 256
    max_depth: int = 16
    learning_rate: float = 1e-3
    warmup: int = 100
    weight_decay: float = 0.01
    log_every: int = 100


def batch_log_q(model: OrderModel, batch: OrderBatch) -> Tensor:
    """``log q[B, L]`` of the batch's hypothetical states."""
    embedded = model.embed_static(static_features(batch.stale))
    return model(embedded, batch.stale.was_masked_BL, batch.masked_now_BL)


def train_order_model(
    model: OrderModel,
    data: OrderData,
    config: OrderTrainingConfig,
    report: Callable[[dict], None],
    first_step: int = 0,
    save: Callable[[int], None] = lambda step: None,
) -> None:
    """Cross-entropy on the true next position; cosine schedule to zero."""
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
    )
    losses: list[float] = []
    model.train()
    for step in range(first_step, config.steps):
        generator = np.random.default_rng((config.seed, step))
        batch = draw_batch(data, config.batch_size, config.max_depth, generator)
        with torch.autocast("cpu", torch.bfloat16):
            log_q = batch_log_q(model, batch)
        loss = F.nll_loss(log_q, batch.next_B)
        for group in optimizer.param_groups:
            group["lr"] = _rate(step, config)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if (step + 1) % config.log_every == 0 or step + 1 == config.steps:
            report({"step": step + 1, "loss": sum(losses) / len(losses)})
            losses = []
            save(step + 1)
    model.eval()


def _rate(step: int, config: OrderTrainingConfig) -> float:
    warm = min(1.0, (step + 1) / config.warmup)
    return config.learning_rate * warm * 0.5 * (1 + float(np.cos(np.pi * step / config.steps)))


@torch.inference_mode()
def accuracy_by_depth(
    model: OrderModel, data: OrderData, depths: range, limit: int = 4000
) -> dict[int, dict[str, float]]:
    """Next-commit accuracy at each depth, beside reading the order off the stale confidence.

    Depth d: d commits were made since the stale state. ``n`` states are measured, spread evenly;
    depths that no state has (of a smaller block) are left out.
    """
    table = {}
    for depth in depths:
        usable = np.flatnonzero(data.left_S >= depth)
        if not len(usable):
            continue
        states = usable[:: max(1, len(usable) // limit)][:limit]
        batch = batch_of(data, states, np.full(len(states), depth))
        predicted = in_chunks(model, batch).argmax(dim=1)
        stale_order = stale_prediction(batch)
        table[depth] = {
            "model": float((predicted == batch.next_B).float().mean()),
            "stale_order": float((stale_order == batch.next_B).float().mean()),
            "n": len(states),
        }
    return table


TEMPERATURES = np.geomspace(0.5, 2.0, 81)
"""Candidates of :func:`fit_temperature`."""


@torch.inference_mode()
def fit_temperature(model: OrderModel, batch: OrderBatch) -> float:
    """The temperature at which the model's distribution is the most likely one of ``batch``.

    Mass is used as a probability, so it must be one (Guo et al., 2017); the batch must not have
    been learnt from.
    """
    logits_BL = in_chunks(model, batch) * model.config.temperature
    losses = [
        float(F.nll_loss(torch.log_softmax(logits_BL / t, dim=1), batch.next_B))
        for t in TEMPERATURES
    ]
    return float(TEMPERATURES[int(np.argmin(losses))])


def stale_prediction(batch: OrderBatch) -> Tensor:
    """The most confident position of the stale distribution that is still masked: ``[B]``."""
    capped = torch.minimum(batch.stale.rank_log_odds_BL, batch.stale.cap_log_odds_B[:, None])
    return capped.masked_fill(~batch.masked_now_BL, -torch.inf).argmax(dim=1)


@torch.inference_mode()
def in_chunks(model: OrderModel, batch: OrderBatch, size: int = 500) -> Tensor:
    """:func:`batch_log_q` of a batch of any size."""
    count = len(batch.next_B)
    parts = []
    for first in range(0, count, size):
        cut = slice(first, first + size)
        fields = {name: tensor[cut] for name, tensor in vars(batch.stale).items()}
        part = OrderBatch(
            type(batch.stale)(**fields),
            batch.masked_now_BL[cut],
            batch.next_B[cut],
            batch.depth_B[cut],
        )
        parts.append(batch_log_q(model, part))
    return torch.cat(parts)
