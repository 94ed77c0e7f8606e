"""The order model learns a trajectory's order, and its confidence can be made a probability."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from drafters.features import NUM_TOKENS
from drafters.order_data import OrderData, batch_of, draw_batch
from drafters.order_model import OrderModel, OrderModelConfig, build_order_model, hidden_tokens
from drafters.order_training import (
    OrderTrainingConfig,
    accuracy_by_depth,
    fit_temperature,
    hide_tokens,
    in_chunks,
    train_order_model,
)
from tests.reference.running import ORDER_FORMS

BLOCK, TOP = 6, 32
SMALL = OrderModelConfig(width=32, layers=1, heads=4, feed_forward=64, head_width=32)


def trajectories(count: int, seed: int) -> OrderData:
    """Blocks whose positions are committed by falling entropy, which no confidence column shows."""
    draw = np.random.default_rng(seed)
    rows, entropies, committed, left = [], [], [], []
    next_row = 0
    for _ in range(count):
        entropy = draw.uniform(0, 4, BLOCK).astype(np.float32)
        order = np.argsort(-entropy)
        for step, position in enumerate(order):
            row = np.full(BLOCK, -1, dtype=np.int32)
            masked = np.sort(order[step:])
            row[masked] = np.arange(next_row, next_row + len(masked))
            next_row += len(masked)
            rows.append(row)
            entropies.append(entropy[masked])
            committed.append(position)
            left.append(BLOCK - 1 - step)
    total = next_row
    log_probs = np.full((total, TOP), -4.0, dtype=np.float16)
    draw_ids = draw.integers(0, 50, (total, NUM_TOKENS), dtype=np.int32)
    flat = np.zeros(total, dtype=np.float32)
    return OrderData(
        row_SL=np.stack(rows),
        state_SL=np.full((len(rows), BLOCK), 7, dtype=np.int32),
        log_probs_RK=log_probs,
        ids_RC=draw_ids,
        entropy_R=np.concatenate(entropies),
        log_odds_R=flat,
        rank_log_odds_R=flat,
        committed_S=np.array(committed),
        left_S=np.array(left),
        prompt_end_S=np.zeros(len(rows), dtype=np.int64),
        cap_log_odds_S=np.full(len(rows), np.inf, dtype=np.float32),
    )


@pytest.fixture(scope="module", params=ORDER_FORMS)
def trained(request: pytest.FixtureRequest) -> OrderModel:
    torch.manual_seed(0)
    model = build_order_model(SMALL.model_copy(update={"encodes": request.param}))
    config = OrderTrainingConfig(
        steps=120,
        batch_size=64,
        max_depth=4,
        prefixes=4 if request.param == "root" else 1,
        warmup=10,
        log_every=60,
    )
    train_order_model(model, trajectories(60, seed=1), config, lambda row: None)
    return model


def test_an_order_that_confidence_does_not_show_is_learnt(trained: OrderModel) -> None:
    table = accuracy_by_depth(trained, trajectories(40, seed=2), range(1, 4))
    for depth, found in table.items():
        assert found["model"] > 0.8 > 0.7 > found["stale_order"], depth
        assert found["n"] == 40 * (BLOCK - depth)


def test_the_fitted_temperature_is_the_one_that_the_truth_was_drawn_with(
    trained: OrderModel,
) -> None:
    data = trajectories(200, seed=3)
    batch = draw_batch(data, 4000, 4, 3, np.random.default_rng(0))
    logits = in_chunks(trained, batch)
    for wanted in (0.7, 1.0, 1.6):
        drawn = torch.distributions.Categorical(logits=logits / wanted)
        torch.manual_seed(4)
        truth = replace(batch, next_BN=drawn.sample())
        assert fit_temperature(trained, truth) == pytest.approx(wanted, rel=0.1)


def test_a_batch_holds_the_tokens_that_stand_and_those_that_may_come() -> None:
    data = trajectories(3, seed=5)
    stale = batch_of(data, np.array([2]), np.array([[1]])).stale
    masked = data.row_SL[2] >= 0
    assert masked.sum() == BLOCK - 2
    assert stale.ids_BLC[0, masked].tolist() == data.ids_RC[data.row_SL[2][masked]].tolist()
    assert stale.ids_BLC[0, ~masked].tolist() == [[7] + [-1] * (NUM_TOKENS - 1)] * 2


def test_the_shares_of_states_and_positions_whose_tokens_are_hidden_are_those_asked_for() -> None:
    data = trajectories(50, seed=6)
    for states, positions in ((0.0, 0.0), (0.3, 0.0), (0.0, 0.2), (0.3, 0.2), (1.0, 0.0)):
        batch = draw_batch(data, 2000, 4, 1, np.random.default_rng(0))
        hide_tokens(batch, states, positions, np.random.default_rng(1))
        hidden = (batch.stale.ids_BLC == -1).all(-1)
        assert float(hidden.all(1).float().mean()) == pytest.approx(states, abs=0.03)
        expected = states + (1 - states) * positions
        assert float(hidden.float().mean()) == pytest.approx(expected, abs=0.03)


def test_a_token_that_training_never_showed_says_nothing() -> None:
    """The order goes by the token; with unknown ones the model does as if they were hidden."""
    torch.manual_seed(0)
    model = build_order_model(SMALL.model_copy(update={"token_buckets": 256}))
    config = OrderTrainingConfig(steps=20, batch_size=32, max_depth=4, prefixes=4, warmup=5)
    train_order_model(model, by_token(trajectories(40, seed=1)), config, lambda row: None)
    batch = batch_of(by_token(trajectories(5, seed=2)), np.arange(8), np.ones((8, 1), dtype=int))
    unknown = replace(batch.stale, ids_BLC=torch.where(batch.stale.ids_BLC < 0, -1, 200))
    known = model(model.encode(batch.stale), batch.masked_BNL)
    with hidden_tokens(model):
        blind = model(model.encode(unknown), batch.masked_BNL)
    found = model(model.encode(unknown), batch.masked_BNL)
    torch.testing.assert_close(found, blind)
    assert not torch.allclose(known, blind, atol=1e-2)


def test_an_order_that_only_the_tokens_tell_is_learnt() -> None:
    """Positions go by their token's id; no probability differs."""
    data, held = (by_token(trajectories(n, seed)) for n, seed in ((80, 1), (40, 2)))
    torch.manual_seed(0)
    model = build_order_model(SMALL.model_copy(update={"token_buckets": 64}))
    config = OrderTrainingConfig(steps=150, batch_size=64, max_depth=4, prefixes=4, warmup=10)
    train_order_model(model, data, config, lambda row: None)
    for found in accuracy_by_depth(model, held, range(1, 4)).values():
        assert found["model"] > 0.8
    with hidden_tokens(model):
        for found in accuracy_by_depth(model, held, range(1, 4)).values():
            assert found["model"] < 0.7


def by_token(data: OrderData) -> OrderData:
    """The same blocks, their entropies told by the first candidate instead."""
    ids = np.full_like(data.ids_RC, 60)
    ids[:, 0] = np.round(data.entropy_R * 12)
    log_probs = np.full_like(data.log_probs_RK, -8.0)
    log_probs[:, 0] = -0.1
    return replace(
        data, ids_RC=ids, entropy_R=np.zeros_like(data.entropy_R), log_probs_RK=log_probs
    )


def test_a_batch_holds_true_prefixes() -> None:
    """Depth d: exactly the first d commits behind the stale state are filled."""
    data = trajectories(3, seed=5)
    depths = np.array([[2, 5], [3, 1], [1, 4]])
    batch = batch_of(data, np.array([0, 1, BLOCK + 2]), depths)
    filled = batch.stale.was_masked_BL.sum(1)[:, None] - batch.masked_BNL.sum(2)
    assert batch.valid_BN.tolist() == [[True, True], [True, True], [True, False]]
    assert filled[batch.valid_BN].tolist() == [2, 5, 3, 1, 1]
    next_states = [2, 5, 4, 2, BLOCK + 3]
    assert batch.next_BN[batch.valid_BN].tolist() == data.committed_S[next_states].tolist()
    assert batch.masked_BNL.gather(2, batch.next_BN[..., None])[batch.valid_BN].all()


def test_every_depth_is_drawn_once_or_some_at_random() -> None:
    data = trajectories(50, seed=6)
    every = draw_batch(data, 40, 4, 4, np.random.default_rng(1))
    assert every.depth_BN.tolist() == [[1, 2, 3, 4]] * 40
    some = draw_batch(data, 400, 4, 2, np.random.default_rng(1))
    assert some.valid_BN.all()
    assert set(some.depth_BN.flatten().tolist()) == {1, 2, 3, 4}
