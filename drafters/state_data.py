"""States of draft-free traces, laid out for fast batches: what all drafters learn from.

Shapes: S states, R rows (masked positions of all states), L block, K top probabilities, C tokens,
B stale states of a batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from drafters.features import StaleTensors


@dataclass(frozen=True)
class StateData:
    """States in trajectory order; the states of one block stand side by side.

    ``row_SL`` points at the row of a masked position, -1 where it is filled, by the token in
    ``state_SL``; ``left_S`` counts the states of the same block that follow.
    """

    row_SL: NDArray[np.int32]
    state_SL: NDArray[np.int32]
    log_probs_RK: NDArray[np.float16]
    entropy_R: NDArray[np.float32]
    log_odds_R: NDArray[np.float32]
    rank_log_odds_R: NDArray[np.float32]
    left_S: NDArray[np.int64]
    prompt_end_S: NDArray[np.int64]

    @property
    def num_states(self) -> int:
        return len(self.left_S)


Data = TypeVar("Data", bound=StateData)


def concatenate(parts: Sequence[Data]) -> Data:
    """One data set out of several recordings."""
    offsets = np.cumsum([0, *(len(part.entropy_R) for part in parts[:-1])])
    rows = [
        np.where(part.row_SL >= 0, part.row_SL + offset, -1).astype(np.int32)
        for part, offset in zip(parts, offsets, strict=True)
    ]
    joined = {
        field.name: np.concatenate([getattr(part, field.name) for part in parts])
        for field in fields(parts[0])
        if field.name != "row_SL"
    }
    return replace(parts[0], row_SL=np.concatenate(rows), **joined)


def spread_states(data: StateData, depth: int, limit: int) -> NDArray[np.int64]:
    """At most ``limit`` states that ``depth`` states of their block follow, spread evenly."""
    usable = np.flatnonzero(data.left_S >= depth)
    return usable[:: max(1, len(usable) // limit)][:limit]


def stale_tensors(
    data: StateData,
    states: NDArray[np.int64],
    ids_BLC: NDArray[np.int64],
    cap_log_odds_B: NDArray[np.float32],
) -> StaleTensors:
    """What a drafter reads of ``states [B]``, with the given token ids and confidence bounds."""
    row_BL = data.row_SL[states]
    tail_BL = np.arange(row_BL.shape[1])[None, :] < data.prompt_end_S[states][:, None]
    return StaleTensors(
        log_probs_BLK=laid_out(data.log_probs_RK, row_BL),
        ids_BLC=torch.from_numpy(ids_BLC),
        entropy_BL=laid_out(data.entropy_R, row_BL),
        log_odds_BL=laid_out(data.log_odds_R, row_BL),
        rank_log_odds_BL=laid_out(data.rank_log_odds_R, row_BL),
        was_masked_BL=torch.from_numpy(row_BL >= 0),
        prompt_tail_BL=torch.from_numpy(tail_BL),
        cap_log_odds_B=torch.from_numpy(cap_log_odds_B),
    )


def laid_out(values_R: NDArray, row_BL: NDArray[np.int32]) -> Tensor:
    """Rows laid out over the block, zeros where the position was filled: ``[B, L, ...]``."""
    found = values_R[np.maximum(row_BL, 0)].astype(np.float32)
    found[row_BL < 0] = 0
    return torch.from_numpy(found)
