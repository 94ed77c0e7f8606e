"""What the order model learns from: states of draft-free traces, laid out for fast batches.

Shapes: S states, R rows (masked positions of all states), L block, K top probabilities, C tokens,
B stale states of a batch, N prefixes behind each.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from drafters.features import StaleTensors


@dataclass(frozen=True)
class OrderData:
    """States in trajectory order; the states of one block stand side by side.

    ``row_SL`` points at the row of a masked position, -1 where it is filled, by the token in
    ``state_SL``; ``ids_RC`` are the tokens of the first probabilities; ``committed_S`` is the
    position that the target commits from a state; ``left_S`` counts the states of the same block
    that follow.
    """

    row_SL: NDArray[np.int32]
    state_SL: NDArray[np.int32]
    log_probs_RK: NDArray[np.float16]
    ids_RC: NDArray[np.int32]
    entropy_R: NDArray[np.float32]
    log_odds_R: NDArray[np.float32]
    rank_log_odds_R: NDArray[np.float32]
    committed_S: NDArray[np.int64]
    left_S: NDArray[np.int64]
    prompt_end_S: NDArray[np.int64]
    cap_log_odds_S: NDArray[np.float32]

    @property
    def num_states(self) -> int:
        return len(self.committed_S)


@dataclass(frozen=True)
class OrderBatch:
    """Stale states, the true path's masks ``depth`` commits later, and the next true position.

    ``valid_BN`` is false where the block holds no such depth; what stands there means nothing.
    """

    stale: StaleTensors
    masked_BNL: torch.Tensor
    next_BN: torch.Tensor
    depth_BN: torch.Tensor
    valid_BN: torch.Tensor


def concatenate(parts: list[OrderData]) -> OrderData:
    """One data set out of several recordings."""
    offsets = np.cumsum([0, *(len(part.entropy_R) for part in parts[:-1])])
    rows = [
        np.where(part.row_SL >= 0, part.row_SL + offset, -1).astype(np.int32)
        for part, offset in zip(parts, offsets, strict=True)
    ]
    joined = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in OrderData.__dataclass_fields__
        if name != "row_SL"
    }
    return OrderData(row_SL=np.concatenate(rows), **joined)


def draw_batch(
    data: OrderData, size: int, max_depth: int, prefixes: int, generator: np.random.Generator
) -> OrderBatch:
    """Random stale states with true path prefixes of 1 to ``max_depth`` commits: ``prefixes`` of
    them at random depths, or one of every depth where that is no more."""
    usable = np.flatnonzero(data.left_S > 0)
    states = generator.choice(usable, size)
    if prefixes >= max_depth:
        depths = np.broadcast_to(np.arange(1, max_depth + 1), (size, max_depth))
    else:
        deepest = np.minimum(data.left_S[states], max_depth)[:, None]
        depths = 1 + (generator.random((size, prefixes)) * deepest).astype(np.int64)
    return batch_of(data, states, depths)


def batch_of(data: OrderData, states: NDArray[np.int64], depths: NDArray[np.int64]) -> OrderBatch:
    """The batch of given stale states ``[B]`` and depths ``[B, N]`` (commits made since)."""
    row = data.row_SL[states]
    masked = row >= 0
    stale = StaleTensors(
        log_probs_BLK=_rows(data.log_probs_RK, row, masked),
        ids_BLC=torch.from_numpy(
            token_ids(data.ids_RC[np.maximum(row, 0)], data.state_SL[states], masked)
        ),
        entropy_BL=_rows(data.entropy_R, row, masked),
        log_odds_BL=_rows(data.log_odds_R, row, masked),
        rank_log_odds_BL=_rows(data.rank_log_odds_R, row, masked),
        was_masked_BL=torch.from_numpy(masked),
        prompt_tail_BL=torch.from_numpy(
            np.arange(row.shape[1])[None, :] < data.prompt_end_S[states][:, None]
        ),
        cap_log_odds_B=torch.from_numpy(data.cap_log_odds_S[states]),
    )
    left = data.left_S[states][:, None]
    later = states[:, None] + np.minimum(depths, left)
    return OrderBatch(
        stale,
        torch.from_numpy(data.row_SL[later] >= 0),
        torch.from_numpy(data.committed_S[later]),
        torch.from_numpy(np.ascontiguousarray(depths)),
        torch.from_numpy(depths <= left),
    )


def token_ids(
    ids_BLC: NDArray[np.int32], state_BL: NDArray[np.int32], masked_BL: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """``ids_BLC`` of :class:`StaleTensors`: candidates where masked, else the token that stands."""
    found = np.where(masked_BL[..., None], ids_BLC, -1).astype(np.int64)
    found[..., 0] = np.where(masked_BL, found[..., 0], state_BL)
    return found


def _rows(values: NDArray, row: NDArray, masked: NDArray) -> torch.Tensor:
    """Rows laid out over the block, zeros where the position was filled."""
    found = values[np.maximum(row, 0)].astype(np.float32)
    found[~masked] = 0
    return torch.from_numpy(found)
