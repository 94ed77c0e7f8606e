"""``sets`` (SPOT-Sets): a tree of whole steps of threshold decoding, by a model of which positions
pass tau next and with which candidates."""

from collections.abc import Hashable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from decoders.proposers.base import Draft, View
from decoders.rules import cap_log_odds
from decoders.set_steps import StepFactors
from decoders.set_tree import Ask, SetTree, grow_set_trees
from drafters.features import MAX_BLOCK, NUM_TOKENS, TOP_K, StaleTensors
from drafters.sets_bundle import check_target_of, load_sets_model
from drafters.sets_model import NUM_CANDIDATES, Encoded, SetsInput, SetsModel
from models.embeddings import read_embeddings
from models.spec import TargetSpec


class SetsProposer:
    """Drafts with a sets model; ``table_VE`` are the target's embeddings as the model reads them.
    All views' nodes of one level share a drafter forward."""

    def __init__(self, model: SetsModel, table_VE: Tensor) -> None:
        self.model = model
        self.table_VE = table_VE

    @torch.inference_mode()
    def propose(self, views: Sequence[View]) -> list[list[Draft]]:
        keys = [tree_key(view) for view in views]
        distinct = dict(zip(keys, views, strict=True))
        trees = [
            SetTree(
                view.root,
                view.budget,
                view.gamma,
                view.barren,
                view.end.mask_id,
                keep_ends=not view.options.lossless,
            )
            for view in distinct.values()
        ]
        grow_set_trees(trees, Scorer(self.model, self.table_VE, list(distinct.values())))
        drafts = {key: tree.drafts() for key, tree in zip(distinct, trees, strict=True)}
        return [drafts[key] for key in keys]


def tree_key(view: View) -> Hashable:
    """What decides a view's tree."""
    options = view.options
    shown = view.root, view.budget, view.gamma, view.end, view.crosses
    return id(view.stale), *shown, options.tau, options.rule


class Scorer:
    """Answers the trees' asks: the step factors of states behind ``views``."""

    def __init__(self, model: SetsModel, table_VE: Tensor, views: Sequence[View]) -> None:
        self.model = model
        self.table_VE = table_VE
        self.views = views

    def __call__(self, asks: list[Ask]) -> list[list[StepFactors]]:
        """One drafter forward for all asks, which index the views."""
        mask_id, length = self.views[0].end.mask_id, len(self.views[0].root)
        states = np.full((len(asks), max(len(each) for _, each in asks), length), -1)
        for place, (_, each) in zip(states, asks, strict=True):
            place[: len(each)] = np.where(np.array(each) == mask_id, -1, np.array(each))
        rows = [index for index, _ in asks]
        whole = rows == list(range(len(self.views)))
        behind = self._encoded if whole else self._encoded.of(torch.tensor(rows))
        found = self.model(behind, torch.from_numpy(states), self.table_VE)
        passes = found.passes_BNL.masked_fill(torch.from_numpy(states) >= 0, -torch.inf)
        tokens = torch.log_softmax(found.tokens_BNLC, dim=-1)
        log_probs, order = tokens.sort(dim=-1, descending=True, stable=True)
        arrays = (passes.double().numpy(), order.numpy(), log_probs.double().numpy())
        return [
            [
                StepFactors(
                    arrays[0][place, number],
                    np.take_along_axis(self._candidates[index], arrays[1][place, number], axis=1),
                    arrays[2][place, number],
                )
                for number in range(len(each))
            ]
            for place, (index, each) in enumerate(asks)
        ]

    @cached_property
    def _known(self) -> SetsInput:
        return stack_views(self.views)

    @cached_property
    def _candidates(self) -> np.ndarray:
        return self._known.candidates_BLC.numpy()

    @cached_property
    def _encoded(self) -> Encoded:
        return self.model.encode(self._known, self.table_VE)


def stack_views(views: Sequence[View]) -> SetsInput:
    """Lay the views' stale rows out over their blocks.

    Raises ``ValueError`` where hidden states are missing.
    """
    count, length = len(views), len(views[0].root)
    hidden = [view.stale.hidden for view in views]
    size = next((rows.shape[1] for rows in hidden if rows is not None), 0)
    if any(rows is None for rows in hidden):
        raise ValueError(
            "decode.method sets reads hidden states, which these traces do not hold; record them "
            "again with --hidden"
        )
    log_probs = np.zeros((count, length, TOP_K), dtype=np.float32)
    columns = np.zeros((3, count, length), dtype=np.float32)
    masked, tail = np.zeros((2, count, length), dtype=bool)
    candidates = np.full((count, length, NUM_CANDIDATES), -1, dtype=np.int64)
    scores = np.zeros((count, length, NUM_CANDIDATES), dtype=np.float32)
    states = np.zeros((count, length, size), dtype=np.float32)
    for index, view in enumerate(views):
        stale, at = view.stale, view.stale.positions
        log_probs[index, at] = -np.inf
        log_probs[index, at, : stale.log_probs.shape[1]] = stale.log_probs
        columns[:, index, at] = stale.entropy, stale.log_odds, stale.rank_log_odds
        masked[index, at] = True
        tail[index, : max(0, view.end.prompt_end)] = True
        candidates[index, at, : stale.candidates.shape[1]] = stale.candidates[:, :NUM_CANDIDATES]
        scores[index, at] = -np.inf
        scores[index, at, : stale.scores.shape[1]] = stale.scores[:, :NUM_CANDIDATES]
        states[index, at] = stale.hidden
    taus = [cap_log_odds(view.options.tau) for view in views]
    stale = StaleTensors(
        torch.from_numpy(log_probs),
        torch.full((count, length, NUM_TOKENS), -1),
        *torch.from_numpy(columns),
        was_masked_BL=torch.from_numpy(masked),
        prompt_tail_BL=torch.from_numpy(tail),
        cap_log_odds_B=torch.tensor(taus, dtype=torch.float32),
    )
    return SetsInput(
        stale, torch.from_numpy(candidates), torch.from_numpy(scores), torch.from_numpy(states)
    )


@torch.inference_mode()
def open_sets_proposer(folder: Path, target_folder: Path, spec: TargetSpec) -> SetsProposer:
    """The proposer of a drafter folder; refuses a target that the model was not made for. Of the
    target's embeddings only what the model makes of them is kept."""
    model = load_sets_model(folder)
    check_target_of(model, folder, target_folder)
    if spec.block_size > MAX_BLOCK:
        raise ValueError(
            f"drafter {folder.name} takes blocks of at most {MAX_BLOCK}; this target's block "
            f"size is {spec.block_size}"
        )
    return SetsProposer(model, model.project(read_embeddings(target_folder, spec)))
