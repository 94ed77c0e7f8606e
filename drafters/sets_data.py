"""What the sets model learns from: states of threshold traces, laid out for fast batches.

Shapes: S states, R rows (masked positions of all states), L block, K top probabilities,
C candidates, H hidden size, B stale states of a batch, N later states behind each.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from drafters.features import NUM_TOKENS, StaleTensors
from drafters.sets_model import SetsInput


@dataclass(frozen=True)
class SetsData:
    """States in trajectory order; the states of one block stand side by side.

    ``row_SL`` points at the row of a masked position, -1 where it is filled, by the token in
    ``state_SL`` (-1 where it is masked); ``left_S`` counts the states of the same block that
    follow; ``tau_log_odds_S`` is what confidences were compared with.
    """

    row_SL: NDArray[np.int32]
    state_SL: NDArray[np.int32]
    log_probs_RK: NDArray[np.float16]
    entropy_R: NDArray[np.float32]
    log_odds_R: NDArray[np.float32]
    rank_log_odds_R: NDArray[np.float32]
    candidates_RC: NDArray[np.int32]
    scores_RC: NDArray[np.float32]
    hidden_RH: NDArray[np.float16]
    left_S: NDArray[np.int64]
    prompt_end_S: NDArray[np.int64]
    tau_log_odds_S: NDArray[np.float32]

    @property
    def num_states(self) -> int:
        return len(self.left_S)


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


def concatenate(parts: list[SetsData]) -> SetsData:
    """One data set out of several recordings."""
    offsets = np.cumsum([0, *(len(part.entropy_R) for part in parts[:-1])])
    rows = [
        np.where(part.row_SL >= 0, part.row_SL + offset, -1).astype(np.int32)
        for part, offset in zip(parts, offsets, strict=True)
    ]
    joined = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in SetsData.__dataclass_fields__
        if name != "row_SL"
    }
    return SetsData(row_SL=np.concatenate(rows), **joined)


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
    masked = row_BL >= 0
    own = np.arange(row_BL.shape[1])[None, :] < data.prompt_end_S[states][:, None]
    stale = StaleTensors(
        log_probs_BLK=_rows(data.log_probs_RK, row_BL),
        # The sets model knows its candidates by their embeddings.
        ids_BLC=torch.full((*row_BL.shape, NUM_TOKENS), -1),
        entropy_BL=_rows(data.entropy_R, row_BL),
        log_odds_BL=_rows(data.log_odds_R, row_BL),
        rank_log_odds_BL=_rows(data.rank_log_odds_R, row_BL),
        was_masked_BL=torch.from_numpy(masked),
        prompt_tail_BL=torch.from_numpy(own),
        cap_log_odds_B=torch.from_numpy(data.tau_log_odds_S[states]),
    )
    candidates = np.where(masked[..., None], data.candidates_RC[np.maximum(row_BL, 0)], -1)
    return SetsInput(
        stale,
        candidates_BLC=torch.from_numpy(candidates.astype(np.int64)),
        scores_BLC=_rows(data.scores_RC, row_BL),
        hidden_BLH=_rows(data.hidden_RH, row_BL),
    )


def _rows(values: NDArray, row_BL: NDArray) -> Tensor:
    """Rows laid out over the block, zeros where the position was filled."""
    found = values[np.maximum(row_BL, 0)].astype(np.float32)
    found[row_BL < 0] = 0
    return torch.from_numpy(found)
