"""What the order model reads: the stale distribution and the path as a set, nothing else."""

import itertools
import math
from dataclasses import fields, replace

import pytest
import torch

from drafters.features import (
    NUM_PATH,
    NUM_STATIC,
    NUM_TOKENS,
    TOP_K,
    StaleTensors,
    gap_to_best,
    path_features,
    static_features,
    token_probs,
)

B, L = 3, 6


def stale_tensors(cap: float = math.inf) -> StaleTensors:
    generator = torch.Generator().manual_seed(0)
    log_probs = torch.log_softmax(3 * torch.randn(B, L, 40, generator=generator), dim=-1)
    top = log_probs.sort(dim=-1, descending=True).values
    masked = torch.tensor([[i != 2 for i in range(L)]] * B)
    odds = top[..., 0] - torch.log1p(-top[..., 0].exp())
    ids = torch.randint(0, 900, (B, L, NUM_TOKENS), generator=generator)
    ids[..., 1:][~masked] = -1
    return StaleTensors(
        log_probs_BLK=top[..., :TOP_K],
        ids_BLC=ids,
        entropy_BL=-(top.exp() * top).sum(-1),
        log_odds_BL=odds,
        rank_log_odds_BL=odds,
        was_masked_BL=masked,
        prompt_tail_BL=torch.tensor([[i == 0 for i in range(L)]] * B),
        cap_log_odds_B=torch.full((B,), cap),
    )


def test_features_have_the_promised_sizes_and_are_finite() -> None:
    for cap in (math.inf, 2.0, -math.inf):
        found = static_features(stale_tensors(cap))
        assert found.shape == (B, L, NUM_STATIC)
        assert found.isfinite().all()


def test_short_vocabularies_and_certain_rows_are_finite() -> None:
    stale = stale_tensors()
    stale.log_probs_BLK[..., 5:] = -math.inf
    stale.log_probs_BLK[0, 0] = torch.tensor([0.0] + [-math.inf] * (TOP_K - 1))
    odds = stale.log_odds_BL.clone()
    odds[0, 0] = math.inf
    found = static_features(replace(stale, log_odds_BL=odds, rank_log_odds_BL=odds))
    assert found.isfinite().all()


def test_rows_that_were_not_masked_carry_no_distribution() -> None:
    stale = stale_tensors()
    loud = stale.log_probs_BLK.clone()
    loud[:, 2] = 5.0
    one, other = static_features(stale), static_features(replace(stale, log_probs_BLK=loud))
    assert torch.equal(one, other)


def test_features_see_every_input_but_the_token_ids() -> None:
    """Changing any one field changes the features of a masked position; ids move between
    tokenizers with the rest only because no feature holds them."""
    stale = stale_tensors(cap=1.0)
    base = static_features(stale)
    others = replace(stale, ids_BLC=stale.ids_BLC + 7)
    assert torch.equal(static_features(others), base)
    for field in fields(StaleTensors):
        if field.name == "ids_BLC":
            continue
        value = getattr(stale, field.name).clone()
        if value.dtype == torch.bool:
            value[0, 4] = ~value[0, 4]
        elif field.name == "cap_log_odds_B":
            value[0] = math.inf
        else:
            value[0, 4] -= 1.5
        changed = static_features(replace(stale, **{field.name: value}))
        assert not torch.equal(changed[0], base[0]), field.name
        assert torch.equal(changed[1:], base[1:]), field.name


def test_a_token_counts_as_much_as_it_is_likely_and_a_filled_one_fully() -> None:
    stale = stale_tensors()
    found = token_probs(stale)
    assert found[0, 2].tolist() == [1.0] + [0.0] * (NUM_TOKENS - 1)
    torch.testing.assert_close(found[:, 3], stale.log_probs_BLK[:, 3, :NUM_TOKENS].exp())
    hidden = replace(stale, ids_BLC=torch.full_like(stale.ids_BLC, -1))
    assert not token_probs(hidden).any()


@pytest.mark.parametrize("capped", [False, True])
def test_the_rank_column_is_the_commit_order(capped: bool) -> None:
    """A cap at the median: half of the positions tie, and stand from left to right."""
    middle = float(stale_tensors().rank_log_odds_BL.median())
    stale = stale_tensors(middle if capped else math.inf)
    rank = static_features(stale)[..., 2 * TOP_K + 5]
    by_odds = []
    for row in range(B):
        odds = stale.rank_log_odds_BL[row].tolist()
        masked = [i for i in range(L) if stale.was_masked_BL[row, i]]
        cap = middle if capped else math.inf
        order = sorted(masked, key=lambda i: (-min(odds[i], cap), i))
        by_odds.append(order == sorted(masked, key=lambda i: -odds[i]))
        expected = torch.tensor([order.index(i) / L for i in masked])
        torch.testing.assert_close(rank[row, masked], expected)
    assert all(by_odds) is not capped


def test_a_path_is_a_set_of_fills() -> None:
    was = torch.tensor([[True, True, False, True, True, False]])
    for order in itertools.permutations([0, 3, 4]):
        now = was[:, None].clone()
        for position in order:
            now[0, 0, position] = False
        capped = torch.tensor([[1.0, 3.0, 9.0, 2.0, 5.0, 9.0]])
        found = path_features(capped, was, now)[0]
        assert found.shape == (1, L, NUM_PATH)
        assert found[0, :, 0].tolist() == [1, 0, 0, 1, 1, 0], "filled since the stale state"
        assert found[0, :, 1].tolist() == [0, 1, 0, 0, 0, 0], "still masked"
        assert found[0, 0, 2] == pytest.approx(3 / L)
        assert found[0, 0, 3] == pytest.approx(1 / 4)
        assert found[0, 0, 4] == pytest.approx(1 / L)


@pytest.mark.parametrize("cap", [math.inf, 4.0, -math.inf])
def test_the_gap_is_measured_to_the_most_confident_position_that_is_left(cap: float) -> None:
    odds = torch.tensor([[1.0, 3.0, 9.0, 2.5, -20.0, math.inf]])
    masked = torch.tensor([[True, True, True, True, True, False]])
    found = gap_to_best(odds.clamp(max=cap), masked)[0]
    for i in range(L):
        best = max(min(float(odds[0, j]), cap, 1e4) for j in range(5)) if cap > -1e4 else 0.0
        mine = min(float(odds[0, i]), cap) if cap > -1e4 else 0.0
        expected = max(mine - best, -10.0) if masked[0, i] else 0.0
        assert float(found[i]) == pytest.approx(expected), i
    assert not gap_to_best(odds, torch.zeros_like(masked)).any()
