"""Training the order model on true path prefixes, and measuring it by depth."""

from dataclasses import fields

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from drafters.features import capped_log_odds
from drafters.order_data import OrderBatch, OrderData, batch_of, draw_batch
from drafters.order_model import OrderModel
from drafters.state_data import spread_states
from drafters.training import Count, DrafterTrainingConfig, Report, Save, keep_nothing, train


class OrderTrainingConfig(DrafterTrainingConfig):
    """How to train; depths are commits made since the stale state."""

    steps: Count = 4000
    batch_size: Count = 128
    """Stale states of a step."""
    max_depth: Count = 16
    """The longest path prefix."""
    prefixes: Count = 16
    """Prefixes behind each stale state. Many are cheap for a model that encodes the root only; one
    that encodes every state learns as much from one, and more stale states."""
    token_dropout: float = Field(default=0.15, ge=0, le=1)
    """Share of stale states whose token ids are hidden, so that the model can do without."""
    position_dropout: float = Field(default=0.0, ge=0, le=1)
    """Share of positions whose token ids are hidden in the other states: where texts are few, the
    model could learn them by heart. Off, as no gain of it was measured yet."""
    learning_rate: float = Field(default=4e-3, gt=0)
    log_every: Count = 100


def batch_loss(model: OrderModel, batch: OrderBatch) -> Tensor:
    """Mean negative log-likelihood of the true next positions."""
    log_q_BNL = model(model.encode(batch.stale), batch.masked_BNL)
    return F.nll_loss(log_q_BNL[batch.valid_BN], batch.next_BN[batch.valid_BN])


def hide_tokens(
    batch: OrderBatch, states: float, positions: float, generator: np.random.Generator
) -> None:
    """Hide token ids in place: of a random share of the ``states``, and of the ``positions``."""
    ids_BLC = batch.stale.ids_BLC
    hidden_BL = generator.random(ids_BLC.shape[:2]) < positions
    hidden_BL |= generator.random((len(ids_BLC), 1)) < states
    ids_BLC[torch.from_numpy(hidden_BL)] = -1


def train_order_model(
    model: OrderModel,
    data: OrderData,
    config: OrderTrainingConfig,
    report: Report,
    first_step: int = 0,
    save: Save = keep_nothing,
) -> None:
    """Cross-entropy on the true next position of random stale states and path prefixes."""

    def loss_of(draw: np.random.Generator) -> Tensor:
        batch = draw_batch(data, config.batch_size, config.max_depth, config.prefixes, draw)
        hide_tokens(batch, config.token_dropout, config.position_dropout, draw)
        return batch_loss(model, batch)

    train(model, dict(model.named_parameters()), loss_of, config, report, first_step, save)


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
        states = spread_states(data, depth, limit)
        if not len(states):
            continue
        batch = batch_of(data, states, np.full((len(states), 1), depth))
        predicted = in_chunks(model, batch).argmax(dim=-1)
        stale_order = stale_prediction(batch)
        table[depth] = {
            "model": float((predicted == batch.next_BN).float().mean()),
            "stale_order": float((stale_order == batch.next_BN).float().mean()),
            "n": len(states),
        }
    return table


TEMPERATURES = np.geomspace(0.5, 4.0, 121)
"""Candidates of :func:`fit_temperature`."""


@torch.inference_mode()
def fit_temperature(model: OrderModel, batch: OrderBatch) -> float:
    """The temperature at which the model's distribution is the most likely one of ``batch``.

    Mass is used as a probability, so it must be one (Guo et al., 2017); the batch must not have
    been learnt from.
    """
    logits = in_chunks(model, batch)[batch.valid_BN] * model.temperature
    truth = batch.next_BN[batch.valid_BN]
    losses = [float(F.nll_loss(torch.log_softmax(logits / t, dim=-1), truth)) for t in TEMPERATURES]
    return float(TEMPERATURES[int(np.argmin(losses))])


def stale_prediction(batch: OrderBatch) -> Tensor:
    """The most confident position of the stale distribution that is still masked: ``[B, N]``."""
    capped = capped_log_odds(batch.stale)[:, None]
    return capped.masked_fill(~batch.masked_BNL, -torch.inf).argmax(dim=-1)


@torch.inference_mode()
def in_chunks(model: OrderModel, batch: OrderBatch, size: int = 500) -> Tensor:
    """``log q[B, N, L]`` of a batch of any size."""
    parts = []
    for first in range(0, len(batch.next_BN), size):
        cut = slice(first, first + size)
        own = {field.name: getattr(batch.stale, field.name)[cut] for field in fields(batch.stale)}
        parts.append(model(model.encode(type(batch.stale)(**own)), batch.masked_BNL[cut]))
    return torch.cat(parts)
