"""The order proposer: its drafts are the best-first tree of what the order model says."""

import math
from typing import Literal

import numpy as np
import pytest
import torch

from decoders.options import DecodeOptions
from decoders.proposers.base import Draft, Origin, View
from decoders.proposers.order import (
    OrderProposer,
    open_order_proposer,
    stack_stale,
    token_candidates,
)
from decoders.proposers.remembering import RememberingOrderProposer
from decoders.request import Request
from decoders.rules import Step
from decoders.sequence import Sequence
from decoders.stale import Stale
from decoders.state import State, fill, masked_positions
from drafters.bundle import BUNDLED_ORDER, find_order_model, load_order_model, save_order_model
from drafters.features import NUM_TOKENS, TOP_K
from models.target import Target
from models.text import vocabulary_digest
from tests.conftest import tiny_model, tiny_spec
from tests.reference.running import (
    ORDER_FORMS,
    prompt_of,
    run,
    run_one,
    tiny_order_model,
)
from tests.reference.tree import best_first, fills
from tests.text_target import save_text_target

MASK = 3
BLOCK = 8
ORIGIN = Origin(Request("any", (), DecodeOptions()), 0)


class Views:
    """An observer that keeps what a proposer would be shown in every round of a live run."""

    def __init__(self, options: DecodeOptions) -> None:
        self.options = options
        self.views: list[View] = []

    def observe(self, sequence: Sequence, state: State, stale: Stale, step: Step) -> None:
        root = fill(state, step)
        if not sequence.end.finished(root):
            self.views.append(View(root, stale, self.options, sequence.end, ORIGIN))


def views_of(temperature: float = 0.0, **values: object) -> list[View]:
    """Real views of two requests: one from its prompt's tail on, one with a limit in its block."""
    options = DecodeOptions.lenient(
        **({"method": "order", "budget": 12, "temperature": temperature} | values)
    )
    observer = Views(options)
    requests = [
        Request(str(n), prompt_of(n), options.draft_free().model_copy(update=own), n)
        for n, own in [(3, {"max_new_tokens": 12}), (9, {"max_new_tokens": 4})]
    ]
    run(Target(tiny_model(tiny_spec(BLOCK))), requests, observer=observer)
    return observer.views


def factors_of(view: View, proposer: OrderProposer, state: State) -> dict[tuple[int, int], float]:
    """The children of a state by the definition: log q(position) + log p(token)."""
    stale = stack_stale([view])
    masked = torch.tensor([[[token == MASK for token in state]]])
    log_q = proposer.model(proposer.model.encode(stale), masked)[0, 0].tolist()
    found = {}
    for row, position in enumerate(view.stale.positions.tolist()):
        if state[position] != MASK:
            continue
        first, second = (float(view.stale.log_probs[row, i]) for i in range(2))
        if view.options.temperature > 0:
            margin = float(view.stale.scores[row, 0]) - float(view.stale.scores[row, 1])
            first = -math.log1p(math.exp(-margin))
            second = -math.log1p(math.exp(margin))
        tokens = view.stale.candidates[row]
        found[position, int(tokens[0])] = log_q[position] + first
        if math.exp(first) < view.options.hedge:
            found[position, int(tokens[1])] = log_q[position] + second
    return found


@pytest.mark.parametrize("form", ORDER_FORMS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("hedge", [0.0, 0.6, 1.0])
def test_drafts_are_the_best_first_tree(
    temperature: float, hedge: float, form: Literal["root", "states"]
) -> None:
    proposer = OrderProposer(tiny_order_model(encodes=form))
    views = views_of(temperature, hedge=hedge)[::3]
    for view, drafts in zip(views, proposer.propose(views), strict=True):
        expected = best_first(
            view.root, lambda s, v=view: factors_of(v, proposer, s), 12, 0.0, view.end.finished
        )
        assert {draft.state for draft in drafts} == set(expected)


def test_drafts_are_unfinished_descendants_behind_a_parent() -> None:
    for view, drafts in zip(
        views := views_of(hedge=1.0), OrderProposer(tiny_order_model(1)).propose(views), strict=True
    ):
        seen = [view.root]
        for draft in drafts:
            depth = fills(draft.state, view.root)
            assert any(
                fills(draft.state, s) == 1 and fills(s, view.root) == depth - 1 for s in seen
            )
            seen.append(draft.state)
            assert not view.end.finished(draft.state)
            assert all(
                now == then or then == MASK
                for now, then in zip(draft.state, view.root, strict=True)
            )
            assert MASK not in {draft.state[p] for p in masked_positions(view.root, MASK)} or (
                masked_positions(draft.state, MASK)
            )
        assert len({draft.state for draft in drafts}) == len(drafts)


def test_a_floor_leaves_only_heavy_nodes() -> None:
    proposer = OrderProposer(tiny_order_model())
    free, floored = (proposer.propose(views_of(gamma=gamma)) for gamma in (0.0, 0.1))
    assert sum(map(len, floored)) < sum(map(len, free))
    for kept, every in zip(floored, free, strict=True):
        assert {d.state for d in kept} <= {d.state for d in every}
        assert all(draft.mass >= 0.1 for draft in kept)
    assert all(len(kept) < 12 for kept in floored), "the floor ends drafting, and not the budget"
    assert same(floored, proposer.propose(views_of(gamma=0.1, budget=60))), (
        "so more changes nothing"
    )


def same(a: list[list[Draft]], b: list[list[Draft]]) -> bool:
    return [[d.state for d in drafts] for drafts in a] == [
        [d.state for d in drafts] for drafts in b
    ]


def test_views_together_get_the_drafts_that_each_gets_alone() -> None:
    proposer = OrderProposer(tiny_order_model())
    views = views_of(1.0)
    assert same(proposer.propose(views), [proposer.propose([view])[0] for view in views])


def test_settings_asked_together_get_the_drafts_that_each_gets_alone() -> None:
    """They share encodings, scores and, where the hedge changes no candidate, whole trees."""
    proposer = OrderProposer(tiny_order_model())
    views = views_of()
    asked = [
        View(v.root, v.stale, v.options.model_copy(update=own), v.end, ORIGIN)
        for own in ({"hedge": 0.3}, {"hedge": 1.0}, {"budget": 3}, {"gamma": 0.1}, {"hedge": 0.31})
        for v in views
    ]
    assert same(proposer.propose(asked), [proposer.propose([view])[0] for view in asked])


def test_a_remembering_proposer_gives_equal_drafts_for_every_setting() -> None:
    plain = OrderProposer(tiny_order_model())
    remembering = RememberingOrderProposer(tiny_order_model())
    views = views_of()
    for budget, gamma, hedge in [(4, 0.0, 0.6), (12, 0.0, 1.0), (12, 0.05, 0.0), (1, 0.0, 0.6)]:
        options = DecodeOptions(method="order", budget=budget, gamma=gamma, hedge=hedge)
        changed = [View(v.root, v.stale, options, v.end, ORIGIN) for v in views]
        assert same(remembering.propose(changed), plain.propose(changed))


def test_the_hedge_adds_the_second_candidate_where_the_first_is_unsure() -> None:
    for view in views_of(hedge=0.3):
        candidates = token_candidates(view, survival_scale=1.0)
        first = np.exp(candidates.log_probs[view.stale.positions, 0])
        second = candidates.log_probs[view.stale.positions, 1]
        assert (np.isfinite(second) == (first < 0.3)).all()
        outside = np.setdiff1d(np.arange(BLOCK), view.stale.positions)
        assert np.isneginf(candidates.log_probs[outside]).all()


def test_above_zero_the_candidates_are_the_perturbed_ones_and_share_one_draw() -> None:
    for view in views_of(1.0, hedge=1.0):
        candidates = token_candidates(view, survival_scale=1.0)
        rows = view.stale.positions
        assert (candidates.tokens[rows] == view.stale.candidates[:, :2]).all()
        np.testing.assert_allclose(np.exp(candidates.log_probs[rows]).sum(axis=1), 1.0)
        assert (candidates.log_probs[rows, 0] >= candidates.log_probs[rows, 1]).all()


def test_stale_rows_are_laid_out_over_the_block() -> None:
    views = views_of()
    stacked = stack_stale(views)
    assert stacked.log_probs_BLK.shape == (len(views), BLOCK, TOP_K)
    for index, view in enumerate(views):
        at = view.stale.positions
        assert stacked.was_masked_BL[index].nonzero().flatten().tolist() == at.tolist()
        kept = view.stale.log_probs.shape[1]
        found = stacked.log_probs_BLK[index, at].numpy()
        np.testing.assert_array_equal(found[:, :kept], view.stale.log_probs)
        assert np.isneginf(found[:, kept:]).all()
        np.testing.assert_array_equal(stacked.log_odds_BL[index, at], view.stale.log_odds)
        ids = stacked.ids_BLC[index]
        most = min(NUM_TOKENS, view.stale.ids.shape[1])
        np.testing.assert_array_equal(ids[at, :most], view.stale.ids[:, :most])
        assert (ids[at, most:] == -1).all()
        filled = [i for i in range(BLOCK) if i not in at]
        assert ids[filled].tolist() == [[view.root[i]] + [-1] * (NUM_TOKENS - 1) for i in filled]
        tail = max(0, view.end.prompt_end)
        assert stacked.prompt_tail_BL[index].tolist() == [i < tail for i in range(BLOCK)]


def test_a_vocabulary_of_two_text_tokens_is_enough() -> None:
    model = tiny_model(tiny_spec(4, vocab_size=6))
    options = DecodeOptions(method="order", budget=6, hedge=1.0, max_new_tokens=9, ignore_stop=True)
    proposers = {"order": OrderProposer(tiny_order_model())}
    for temperature in (0.0, 1.0):
        opts = options.model_copy(update={"temperature": temperature})
        found = run_one(Target(model), (4, 5), opts, 0, proposers)
        expected = run_one(Target(model), (4, 5), opts.draft_free(), 0)
        assert found.token_ids == expected.token_ids


def test_one_kept_token_needs_no_hedge() -> None:
    """With top-k 1 the second candidate has no chance, and must not be drafted."""
    for view in views_of(1.0, hedge=1.0, top_k=1):
        candidates = token_candidates(view, survival_scale=1.0)
        assert (candidates.log_probs[view.stale.positions, 0] == 0).all()
        assert np.isneginf(candidates.log_probs[view.stale.positions, 1]).all()


def test_a_saved_model_drafts_what_it_drafted(tmp_path) -> None:
    target = save_text_target(tmp_path / "target")
    model = tiny_order_model()
    model.config = model.config.model_copy(update={"vocabulary": vocabulary_digest(target)})
    save_order_model(model, tmp_path)
    views = views_of()
    loaded = open_order_proposer(tmp_path, target, BLOCK)
    assert loaded.model.reads_tokens
    assert same(loaded.propose(views), OrderProposer(model).propose(views))
    assert loaded.model.config == model.config


def test_a_block_beyond_the_models_own_is_refused_with_the_limit(tmp_path) -> None:
    save_order_model(tiny_order_model(), tmp_path)
    with pytest.raises(ValueError, match="at most 32; this target's block size is 64"):
        open_order_proposer(tmp_path, tmp_path, 64)


def test_which_drafter_is_found(tmp_path) -> None:
    save_order_model(tiny_order_model(), tmp_path / "own")
    save_order_model(tiny_order_model(), tmp_path / "target" / "order")
    assert find_order_model(str(tmp_path / "own"), tmp_path) == tmp_path / "own"
    assert find_order_model(None, tmp_path / "target") == tmp_path / "target" / "order"
    assert find_order_model(None, tmp_path) == BUNDLED_ORDER
    with pytest.raises(ValueError, match=r"drafter.path .*nowhere"):
        find_order_model(str(tmp_path / "nowhere"), tmp_path)
    (tmp_path / "own" / "config.json").write_text('{"model_type": "other"}')
    with pytest.raises(ValueError, match="model_type 'other' is not 'maskahead-order'"):
        load_order_model(tmp_path / "own", None)
