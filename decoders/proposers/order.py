"""``order`` (SPOT): the order model grows a tree of future states; tokens come from the stale
distribution, with the second candidate where the first is unsure (hedge)."""

import math
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from decoders.proposers.base import Draft, View
from decoders.proposers.chain import chain
from decoders.rules import cap_log_odds
from decoders.stale import Stale
from decoders.state import State
from decoders.tree import Ask, Candidates, DraftTree, Scores, grow_trees
from drafters.bundle import load_order_model
from drafters.features import MAX_BLOCK, NUM_TOKENS, TOP_K, StaleTensors
from drafters.order_model import Encoded, OrderModel
from drafters.placed import PlacedModel, placed_on
from drafters.survival import survival_log_probs


class OrderProposer:
    """Drafts with an order model; all views' nodes of one level share a drafter forward."""

    def __init__(self, model: OrderModel | PlacedModel) -> None:
        self.model = model

    @torch.inference_mode()
    def propose(self, views: Sequence[View]) -> list[list[Draft]]:
        scale = self.model.config.survival_scale
        keyed = [(view, token_candidates(view, scale)) for view in views]
        keys = [tree_key(view, candidates) for view, candidates in keyed]
        # Most hedges of a replay's settings come to the same candidates, and so to one tree.
        distinct = dict(zip(keys, keyed, strict=True))
        trees = [
            DraftTree(view.root, candidates, view.budget, view.gamma, view.barren)
            for view, candidates in distinct.values()
        ]
        asking = [view for view, _ in distinct.values()]
        grow_trees(trees, Scorer(self.model, asking, self.scores_behind))
        drafts = {key: tree.drafts() for key, tree in zip(distinct, trees, strict=True)}
        return [drafts[key] for key in keys]

    def scores_behind(self, stale: Stale) -> dict[State, Scores]:
        """What is known of states behind a stale distribution when drafting begins: nothing."""
        return {}


class Scorer:
    """Answers the trees' asks: ``log q`` of states behind ``views``, each state scored once.

    Views of one stale distribution (settings of a replay) share its encoding and its scores.
    """

    def __init__(
        self,
        model: OrderModel | PlacedModel,
        views: Sequence[View],
        scores_behind: Callable[[Stale], dict[State, Scores]],
    ) -> None:
        self.model = model
        distinct = {id(view.stale): view for view in views}
        self.views = list(distinct.values())
        self.known = [scores_behind(view.stale) for view in self.views]
        row_of = {key: row for row, key in enumerate(distinct)}
        self.rows = [row_of[id(view.stale)] for view in views]

    def __call__(self, asks: list[Ask]) -> list[list[Scores]]:
        """One drafter forward for all that is not known yet; asks index the views."""
        wanted: dict[int, list[State]] = {}
        for index, states in asks:
            row = self.rows[index]
            new = [state for state in states if state not in self.known[row]]
            if new:
                wanted.setdefault(row, []).extend(new)
        if wanted:
            self._score(wanted)
        return [[self.known[self.rows[index]][s] for s in states] for index, states in asks]

    @cached_property
    def _encoded(self) -> Encoded:
        return self.model.encode(stack_stale(self.views))

    def _score(self, wanted: dict[int, list[State]]) -> None:
        if "_encoded" not in vars(self):
            for row in wanted:
                wanted[row] += foreseen(self.views[row])
        rows = list(wanted)
        asked = [list(dict.fromkeys(wanted[row])) for row in rows]
        mask_id, length = self.views[0].end.mask_id, len(self.views[0].root)
        masked = np.zeros((len(rows), max(map(len, asked)), length), dtype=bool)
        for place, states in zip(masked, asked, strict=True):
            place[: len(states)] = np.array(states) == mask_id
        whole = rows == list(range(len(self.views)))
        behind = self._encoded if whole else self._encoded.of(rows)
        log_q = self.model(behind, torch.from_numpy(masked)).double().numpy()
        for row, states, scores in zip(rows, asked, log_q, strict=True):
            self.known[row].update(zip(states, scores, strict=False))


def foreseen(view: View) -> list[State]:
    """States that the tree will surely ask about: the run of the positions above the cap, whose
    order is known. Scored with the first ask, they save it one ask a level."""
    sure = view.stale.rank_log_odds >= cap_log_odds(view.options.cap)
    run = sum(view.root[int(p)] == view.end.mask_id for p in view.stale.positions[sure])
    return [d.state for d in chain(view)[:run] if view.end.mask_id in d.state]


def open_order_proposer(
    folder: Path, target_folder: Path, block_size: int, device: str = "cpu"
) -> OrderProposer:
    """The proposer of a drafter folder, its model on ``device``; refuses a block that the model was
    not made for."""
    if block_size > MAX_BLOCK:
        raise ValueError(
            f"drafter {folder.name} takes blocks of at most {MAX_BLOCK}; this target's block "
            f"size is {block_size}"
        )
    model = load_order_model(folder, target_folder)
    return OrderProposer(model if device == "cpu" else placed_on(device, model))


def tree_key(view: View, candidates: Candidates) -> Hashable:
    """What decides a view's tree."""
    masked = np.array(view.root) == view.end.mask_id
    fills = candidates.log_probs[masked].tobytes()
    return id(view.stale), view.root, view.budget, view.gamma, view.end, view.crosses, fills


def stack_stale(views: Sequence[View]) -> StaleTensors:
    """Lay the views' stale rows out over their blocks."""
    length = len(views[0].root)
    count = len(views)
    log_probs = np.zeros((count, length, TOP_K), dtype=np.float32)
    ids = np.full((count, length, NUM_TOKENS), -1, dtype=np.int64)
    columns = np.zeros((3, count, length), dtype=np.float32)
    was_masked = np.zeros((count, length), dtype=bool)
    tail = np.zeros((count, length), dtype=bool)
    for index, view in enumerate(views):
        stale, at = view.stale, view.stale.positions
        ids[index, :, 0] = view.root  # the positions that were filled keep this
        ids[index, at] = -1
        ids[index, at, : stale.ids.shape[1]] = stale.ids[:, :NUM_TOKENS]
        log_probs[index, at] = -np.inf
        log_probs[index, at, : stale.log_probs.shape[1]] = stale.log_probs
        columns[:, index, at] = stale.entropy, stale.log_odds, stale.rank_log_odds
        was_masked[index, at] = True
        tail[index, : max(0, view.end.prompt_end)] = True
    caps = [cap_log_odds(view.options.cap) for view in views]
    return StaleTensors(
        torch.from_numpy(log_probs),
        torch.from_numpy(ids),
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
        first, second = survival_log_probs(stale.scores[:, 0] - stale.scores[:, 1], survival_scale)
    length = len(view.root)
    tokens = np.zeros((length, 2), dtype=np.int64)
    log_probs = np.full((length, 2), -math.inf)
    tokens[stale.positions] = stale.candidates[:, :2]
    log_probs[stale.positions, 0] = first
    log_probs[stale.positions, 1] = np.where(np.exp(first) < hedge, second, -math.inf)
    return Candidates(tokens, log_probs)
