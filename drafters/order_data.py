"""What the order model learns from: states of draft-free traces, laid out for fast batches.

Shapes: S states, R rows (masked positions of all states), L block, K top probabilities, C tokens,
B stale states of a batch, N prefixes behind each.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from drafters.features import StaleTensors
from drafters.state_data import StateData, stale_tensors


@dataclass(frozen=True)
class OrderData(StateData):
    """``ids_RC`` are the tokens of the first probabilities; ``committed_S`` is the position that
    the target commits from a state."""

    ids_RC: NDArray[np.int32]
    committed_S: NDArray[np.int64]
    cap_log_odds_S: NDArray[np.float32]


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
    row_BL = data.row_SL[states]
    ids_BLC = token_ids(data.ids_RC[np.maximum(row_BL, 0)], data.state_SL[states], row_BL >= 0)
    stale = stale_tensors(data, states, ids_BLC, data.cap_log_odds_S[states])
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
