"""What the sets model learns from: states of threshold traces, laid out for fast batches.

Shapes: S states, R rows (masked positions of all states), L block, K top probabilities,
C candidates, H hidden size, B stale states of a batch, N later states behind each.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from drafters.features import NUM_TOKENS
from drafters.sets_model import SetsInput
from drafters.state_data import StateData, laid_out, stale_tensors


@dataclass(frozen=True)
class SetsData(StateData):
    """``state_SL`` is -1 where it is masked; ``tau_log_odds_S`` is what confidences were compared
    with."""

    candidates_RC: NDArray[np.int32]
    scores_RC: NDArray[np.float32]
    hidden_RH: NDArray[np.float16]
    tau_log_odds_S: NDArray[np.float32]


@dataclass(frozen=True)
class SetsBatch:
    """Stale states, true states ``depth`` steps later, and what the target says of those.

    ``passes_BNL`` are the positions above tau there, ``step_BNL`` those that it commits (the top
    one where none passes), ``choice_BNL`` the place of its present token among the stale
    candidates, -1 where it is none of them or the position is filled. ``valid_BN`` is false where
    the block holds no such depth; what stands there means nothing.
    """

    known: SetsInput
    states_BNL: Tensor
    passes_BNL: Tensor
    step_BNL: Tensor
    choice_BNL: Tensor
    valid_BN: Tensor


def draw_batch(
    data: SetsData, size: int, max_depth: int, generator: np.random.Generator
) -> SetsBatch:
    """Random stale states, each with a true state 1 to ``max_depth`` steps later."""
    states = generator.choice(np.flatnonzero(data.left_S > 0), size)
    deepest = np.minimum(data.left_S[states], max_depth)
    depths = 1 + (generator.random(size) * deepest).astype(np.int64)
    return batch_of(data, states, depths[:, None])


def batch_of(data: SetsData, states: NDArray[np.int64], depths: NDArray[np.int64]) -> SetsBatch:
    """The batch of given stale states ``[B]`` and depths ``[B, N]`` (steps made since)."""
    left = data.left_S[states][:, None]
    later = states[:, None] + np.minimum(depths, left)
    stale_rows, rows = data.row_SL[states], data.row_SL[later]
    masked = rows >= 0
    confidence = np.where(masked, data.rank_log_odds_R[np.maximum(rows, 0)], -np.inf)
    passes = confidence > data.tau_log_odds_S[states][:, None, None]
    top = np.arange(rows.shape[2]) == confidence.argmax(axis=2)[..., None]
    step = np.where(passes.any(axis=2, keepdims=True), passes, top)
    now = data.candidates_RC[np.maximum(rows, 0), 0]
    same = data.candidates_RC[np.maximum(stale_rows, 0)][:, None] == now[..., None]
    found = masked & same.any(axis=3)
    return SetsBatch(
        known=_known(data, states, stale_rows),
        states_BNL=torch.from_numpy(data.state_SL[later].astype(np.int64)),
        passes_BNL=torch.from_numpy(passes),
        step_BNL=torch.from_numpy(step),
        choice_BNL=torch.from_numpy(np.where(found, same.argmax(axis=3), -1)),
        valid_BN=torch.from_numpy(depths <= left),
    )


def _known(data: SetsData, states: NDArray[np.int64], row_BL: NDArray[np.int32]) -> SetsInput:
    # The sets model knows its candidates by their embeddings.
    no_ids_BLC = np.full((*row_BL.shape, NUM_TOKENS), -1)
    found_BLC = data.candidates_RC[np.maximum(row_BL, 0)].astype(np.int64)
    return SetsInput(
        stale_tensors(data, states, no_ids_BLC, data.tau_log_odds_S[states]),
        candidates_BLC=torch.from_numpy(np.where((row_BL >= 0)[..., None], found_BLC, -1)),
        scores_BLC=laid_out(data.scores_RC, row_BL),
        hidden_BLH=laid_out(data.hidden_RH, row_BL),
    )
