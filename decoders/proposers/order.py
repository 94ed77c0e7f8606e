"""``order`` (SPOT): the order model grows a tree of future states; tokens come from the stale
distribution, with the second candidate where the first is unsure (hedge)."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from decoders.proposers.base import Draft, View
from decoders.rules import cap_log_odds
from decoders.stale import Stale
from decoders.tree import Ask, Candidates, DraftTree, Scores, grow_trees
from drafters.bundle import load_order_model
from drafters.features import MAX_BLOCK, TOP_K, StaleTensors, static_features
from drafters.order_model import OrderModel


class OrderProposer:
    """Drafts with an order model; all views' nodes of one level share a drafter forward."""

    def __init__(self, model: OrderModel) -> None:
        self.model = model

    @torch.inference_mode()
    def propose(self, views: Sequence[View]) -> list[list[Draft]]:
        stale = stack_stale(views)
        embedded = self.model.embed_static(static_features(stale))
        trees = [
            DraftTree(
                view.root,
                token_candidates(view, self.model.config.survival_scale),
                view.budget,
                view.options.gamma,
                view.end.finished,
            )
            for view in views
        ]
        grow_trees(trees, lambda asks: self.score(views, asks, embedded, stale.was_masked_BL))
        return [tree.drafts() for tree in trees]

    def score(
        self, views: Sequence[View], asks: list[Ask], embedded: Tensor, was_masked: Tensor
    ) -> list[list[Scores]]:
        """``log q`` of every asked state, in one forward; asks index ``views``."""
        owners = torch.tensor([index for index, states in asks for _ in states])
        masked = torch.tensor(
            [[t == views[i].end.mask_id for t in state] for i, states in asks for state in states]
        )
        log_q = self.model(embedded[owners], was_masked[owners], masked).double().numpy()
        rows = iter(log_q)
        return [[next(rows) for _ in states] for _, states in asks]


def open_order_proposer(folder: Path, block_size: int) -> OrderProposer:
    """The proposer of a drafter folder; refuses a block that the model was not made for."""
    if block_size > MAX_BLOCK:
        raise ValueError(
            f"drafter {folder.name} takes blocks of at most {MAX_BLOCK}; this target's block "
            f"size is {block_size}"
        )
    return OrderProposer(load_order_model(folder))


def stack_stale(views: Sequence[View]) -> StaleTensors:
    """Lay the views' stale rows out over their blocks."""
    length = len(views[0].root)
    count = len(views)
    log_probs = np.zeros((count, length, TOP_K), dtype=np.float32)
    columns = np.zeros((3, count, length), dtype=np.float32)
    was_masked = np.zeros((count, length), dtype=bool)
    tail = np.zeros((count, length), dtype=bool)
    for index, view in enumerate(views):
        stale, at = view.stale, view.stale.positions
        log_probs[index, at] = -np.inf
        log_probs[index, at, : stale.log_probs.shape[1]] = stale.log_probs
        columns[:, index, at] = stale.entropy, stale.log_odds, stale.rank_log_odds
        was_masked[index, at] = True
        tail[index, : max(0, view.end.prompt_end)] = True
    caps = [cap_log_odds(view.options.cap) for view in views]
    return StaleTensors(
        torch.from_numpy(log_probs),
        *torch.from_numpy(columns),
        was_masked_BL=torch.from_numpy(was_masked),
        prompt_tail_BL=torch.from_numpy(tail),
        cap_log_odds_B=torch.tensor(caps, dtype=torch.float32),
    )


def token_candidates(view: View, survival_scale: float) -> Candidates:
    """First candidate everywhere, second where the first's probability is below the hedge.

    At T=0, and where every step draws anew, the probability of a candidate is the stale one. With
    shared noise candidates are ordered by it, and the first's probability is the chance that this
    draw survives the change of distribution.
    """
    stale, options, hedge = view.stale, view.options, view.options.hedge
    if options.temperature == 0 or not options.coupled:
        first, second = stale.scores[:, 0], stale.scores[:, 1]
    else:
        first, second = _survival(stale, survival_scale)
    length = len(view.root)
    tokens = np.zeros((length, 2), dtype=np.int64)
    log_probs = np.full((length, 2), -math.inf)
    tokens[stale.positions] = stale.candidates[:, :2]
    log_probs[stale.positions, 0] = first
    log_probs[stale.positions, 1] = np.where(np.exp(first) < hedge, second, -math.inf)
    return Candidates(tokens, log_probs)


def _survival(stale: Stale, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities that the first, or else the second, perturbed candidate is drawn."""
    margin = (stale.scores[:, 0] - stale.scores[:, 1]).astype(np.float64) * scale
    return -np.logaddexp(0, -margin), -np.logaddexp(0, margin)
