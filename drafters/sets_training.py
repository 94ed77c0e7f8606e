"""Training the sets model on true states some steps ahead, and measuring it by depth."""

from collections.abc import Iterator

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn import Parameter
from torch.nn import functional as F

from drafters.sets_data import SetsBatch, SetsData, batch_of, draw_batch
from drafters.sets_model import INPUT_LAYERS, Predicted, SetsModel
from drafters.state_data import spread_states
from drafters.training import Count, DrafterTrainingConfig, Report, Save, keep_nothing, train


class SetsTrainingConfig(DrafterTrainingConfig):
    """How to train; depths are steps made since the stale state."""

    steps: Count = 2500
    batch_size: Count = 64
    """Stale states of a step, each with one later state."""
    max_depth: Count = 6
    learning_rate: float = Field(default=1e-3, gt=0)
    bystander_weight: float = Field(default=0.25, ge=0)
    """What the token of a position that is not in the step counts, beside one that is."""
    inputs_only: bool = False
    """Refit the input layers alone: the short calibration of a drafter for another target."""
    log_every: Count = 50


def batch_loss(found: Predicted, batch: SetsBatch, bystander_weight: float) -> Tensor:
    """How unlikely the model holds what happened: which positions pass (binary, all masked ones),
    which one is committed where none does, and which candidates the target names."""
    masked_BNL = (batch.states_BNL < 0) & batch.valid_BN[..., None]
    passing = F.binary_cross_entropy_with_logits(
        found.passes_BNL[masked_BNL], batch.passes_BNL[masked_BNL].float()
    )
    none_BN = batch.valid_BN & ~batch.passes_BNL.any(dim=-1)
    logits = found.passes_BNL.masked_fill(~masked_BNL, -torch.inf)[none_BN]
    first = F.cross_entropy(logits, batch.step_BNL[none_BN].float().argmax(-1), reduction="sum")
    known_BNL = masked_BNL & (batch.choice_BNL >= 0)
    weights = torch.where(batch.step_BNL[known_BNL], 1.0, bystander_weight)
    losses = F.cross_entropy(
        found.tokens_BNLC[known_BNL], batch.choice_BNL[known_BNL], reduction="none"
    )
    tokens = (weights * losses).sum() / weights.sum().clamp(min=1)
    return passing + tokens + 0.1 * first / batch.valid_BN.sum().clamp(min=1)


def trained_parameters(model: SetsModel, config: SetsTrainingConfig) -> dict[str, Parameter]:
    """All of them, or those of the input layers."""
    named = dict(model.named_parameters())
    if config.inputs_only:
        return {n: p for n, p in named.items() if n.startswith(INPUT_LAYERS)}
    return named


def train_sets_model(
    model: SetsModel,
    embeddings_VH: Tensor,
    data: SetsData,
    config: SetsTrainingConfig,
    report: Report,
    first_step: int = 0,
    save: Save = keep_nothing,
) -> None:
    """Minimise :func:`batch_loss` of random stale states, each with a later one."""

    def loss_of(draw: np.random.Generator) -> Tensor:
        batch = draw_batch(data, config.batch_size, config.max_depth, draw)
        table = model.project(embeddings_VH)
        found = model(model.encode(batch.known, table), batch.states_BNL, table)
        return batch_loss(found, batch, config.bystander_weight)

    train(model, trained_parameters(model, config), loss_of, config, report, first_step, save)


@torch.inference_mode()
def accuracy_by_depth(
    model: SetsModel, embeddings_VH: Tensor, data: SetsData, depths: range, limit: int = 4000
) -> dict[int, dict[str, float]]:
    """What is right of steps made ``depth`` steps after the stale state, the true states between
    given: the tokens that are committed, the model's and the stale argmax; which positions are in
    the step; and whole steps, tokens included.

    ``n`` states hold ``tokens`` commits. Depths that no state has are left out.
    """
    table = {}
    for depth in depths:
        states = spread_states(data, depth, limit)
        if not len(states):
            continue
        counts = np.zeros(5)
        for batch, found in predict(model, embeddings_VH, data, states, depth):
            counts += _count(batch, found)
        committed, right, stale, members, steps = counts.tolist()
        table[depth] = {
            "tokens": int(committed),
            "token": right / committed,
            "stale_argmax": stale / committed,
            "positions": members / len(states),
            "steps": steps / len(states),
            "n": len(states),
        }
    return table


def predict(
    model: SetsModel,
    embeddings_VH: Tensor,
    data: SetsData,
    states: np.ndarray,
    depth: int,
    size: int = 250,
) -> Iterator[tuple[SetsBatch, Predicted]]:
    """Batches of states at one depth with what the model says of them."""
    table = model.project(embeddings_VH)
    for first in range(0, len(states), size):
        part = states[first : first + size]
        batch = batch_of(data, part, np.full((len(part), 1), depth))
        yield batch, model(model.encode(batch.known, table), batch.states_BNL, table)


def _count(batch: SetsBatch, found: Predicted) -> np.ndarray:
    """Commits; of them right by the model and by the stale argmax; right sets; right steps."""
    step = batch.step_BNL
    chosen = found.tokens_BNLC.argmax(dim=-1)
    right = (chosen == batch.choice_BNL) & step
    logits = found.passes_BNL.masked_fill(batch.states_BNL >= 0, -torch.inf)
    drafted = logits > 0
    none = ~drafted.any(dim=-1, keepdim=True)
    top = torch.zeros_like(drafted).scatter_(-1, logits.argmax(-1, keepdim=True), True)
    drafted = torch.where(none, top, drafted)
    same = (drafted == step).all(dim=-1)
    whole = same & (right == step).all(dim=-1)
    stale = (batch.choice_BNL == 0) & step
    return np.array([float(part.sum()) for part in (step, right, stale, same, whole)])


TEMPERATURES = np.geomspace(0.5, 4.0, 61)
"""Candidates of :func:`fit_temperatures`."""


@torch.inference_mode()
def fit_temperatures(found: Predicted, batch: SetsBatch) -> tuple[float, float]:
    """The temperatures of passing and of the candidates at which ``batch`` is the most likely; it
    must not have been learnt from, and ``found`` must be made at temperature 1."""
    masked = (batch.states_BNL < 0) & batch.valid_BN[..., None]
    logits, passes = found.passes_BNL[masked], batch.passes_BNL[masked].float()
    members = batch.step_BNL & (batch.choice_BNL >= 0) & batch.valid_BN[..., None]
    tokens, choices = found.tokens_BNLC[members], batch.choice_BNL[members]
    passing = [float(F.binary_cross_entropy_with_logits(logits / t, passes)) for t in TEMPERATURES]
    naming = [float(F.cross_entropy(tokens / t, choices)) for t in TEMPERATURES]
    return float(TEMPERATURES[np.argmin(passing)]), float(TEMPERATURES[np.argmin(naming)])
