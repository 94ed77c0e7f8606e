"""The sets model: its size, what it reads, and that it learns what it is for."""

import numpy as np
import pytest
import torch

from drafters.sets_data import SetsData, batch_of, draw_batch
from drafters.sets_model import INPUT_LAYERS, SetsModel, SetsModelConfig
from drafters.sets_training import (
    SetsTrainingConfig,
    accuracy_by_depth,
    batch_loss,
    fit_temperatures,
    train_sets_model,
)
from drafters.state_data import concatenate

BLOCK, HIDDEN, VOCAB, CANDIDATES = 4, 6, 20, 3
SMALL = {"width": 16, "layers": 1, "heads": 2, "feed_forward": 32, "token_width": 8}


def small_model(seed: int = 0) -> SetsModel:
    torch.manual_seed(seed)
    return SetsModel(SetsModelConfig(hidden_size=HIDDEN, **SMALL)).eval()


def trajectories(count: int, seed: int) -> SetsData:
    """Blocks of three states. Which position passes next, and that it takes its second candidate,
    shows in the hidden states alone."""
    draw = np.random.default_rng(seed)
    rows, states, left, columns = [], [], [], []
    next_row = 0
    for _ in range(count):
        order = draw.permutation(BLOCK)
        ids = np.array([draw.choice(VOCAB, CANDIDATES, replace=False) for _ in range(BLOCK)])
        for step in range(3):
            row = np.full(BLOCK, -1, dtype=np.int32)
            masked = np.sort(order[step:])
            row[masked] = np.arange(next_row, next_row + len(masked))
            next_row += len(masked)
            state = np.where(row >= 0, -1, ids[:, 1]).astype(np.int32)
            hidden = np.zeros((len(masked), HIDDEN), dtype=np.float16)
            if step < 2:
                hidden[masked == order[step + 1], 0] = 4
            swapped = ids[masked] if step == 0 else ids[masked][:, [1, 0, 2]]
            columns.append((masked == order[step], swapped, hidden))
            rows.append(row)
            states.append(state)
            left.append(2 - step)
    passing, ids, hidden = (np.concatenate(part) for part in zip(*columns, strict=True))
    flat = np.zeros(next_row, dtype=np.float32)
    return SetsData(
        row_SL=np.stack(rows),
        state_SL=np.stack(states),
        log_probs_RK=np.full((next_row, 32), -4.0, dtype=np.float16),
        entropy_R=flat,
        log_odds_R=flat,
        rank_log_odds_R=np.where(passing, 1.0, -1.0).astype(np.float32),
        candidates_RC=ids.astype(np.int32),
        scores_RC=np.tile(np.float32([-0.5, -1.5, -3.0]), (next_row, 1)),
        hidden_RH=hidden,
        left_S=np.array(left),
        prompt_end_S=np.zeros(len(rows), dtype=np.int64),
        tau_log_odds_S=np.zeros(len(rows), dtype=np.float32),
    )


def test_at_the_width_of_sdar_8b_it_has_the_papers_size() -> None:
    with torch.device("meta"):
        model = SetsModel(SetsModelConfig(hidden_size=4096))
    assert model.num_parameters == pytest.approx(5.1e6, rel=0.03)
    inputs = [p for n, p in model.named_parameters() if n.startswith(INPUT_LAYERS)]
    assert sum(p.numel() for p in inputs) == 4096 * (256 + 176)
    with torch.device("meta"):
        small = SetsModel(SetsModelConfig(hidden_size=256))
    assert model.num_parameters - small.num_parameters == (4096 - 256) * (256 + 176)


def test_it_learns_who_passes_and_what_the_stale_argmax_does_not_know() -> None:
    data, held_out = trajectories(300, seed=0), trajectories(60, seed=1)
    model, embeddings = small_model(), torch.randn(VOCAB, HIDDEN)
    rows: list[dict] = []
    config = SetsTrainingConfig(steps=120, learning_rate=5e-3, max_depth=1, log_every=40)
    train_sets_model(model, embeddings, data, config, rows.append)
    losses = [row["loss"] for row in rows]
    assert losses[-1] < 0.6 * losses[0]
    found = accuracy_by_depth(model, embeddings, held_out, range(1, 2))[1]
    assert found["stale_argmax"] < 0.6
    assert found["token"] > 0.9
    assert found["positions"] > 0.8


def test_calibration_for_another_target_changes_the_input_layers_alone() -> None:
    model = small_model()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    config = SetsTrainingConfig(steps=3, inputs_only=True)
    data = trajectories(20, seed=2)
    train_sets_model(model, torch.randn(VOCAB, HIDDEN), data, config, lambda row: None)
    changed = {n for n, t in model.state_dict().items() if not torch.equal(t, before[n])}
    assert changed == {"hidden_in.weight", "token_in.weight"}


def test_a_resumed_training_sees_the_batches_of_an_uninterrupted_one() -> None:
    data, seen = trajectories(20, seed=3), []
    for first in (0, 2):
        for step in range(first, 4):
            batch = draw_batch(data, 5, 2, np.random.default_rng((0, step)))
            seen.append((step, batch.states_BNL.tolist()))
    assert seen[2:4] == seen[4:]


def test_a_batch_tells_the_step_of_the_later_state() -> None:
    data = trajectories(5, seed=4)
    batch = batch_of(data, np.array([0, 0, 1]), np.array([[1], [2], [2]]))
    assert batch.valid_BN.squeeze(1).tolist() == [True, True, False]
    for number, later in ((0, 1), (1, 2)):
        row = data.row_SL[later]
        passing = [r >= 0 and data.rank_log_odds_R[r] > 0 for r in row]
        assert batch.step_BNL[number, 0].tolist() == passing
        assert batch.states_BNL[number, 0].tolist() == data.state_SL[later].tolist()
        choice = batch.choice_BNL[number, 0]
        assert {int(c) for c, r in zip(choice, row, strict=True) if r >= 0} == {1}
        assert {int(c) for c, r in zip(choice, row, strict=True) if r < 0} <= {-1}


def test_where_nothing_passes_the_most_confident_position_is_the_step() -> None:
    data = trajectories(5, seed=5)
    low = np.linspace(-3, -2, len(data.rank_log_odds_R), dtype=np.float32)
    unsure = SetsData(**(data.__dict__ | {"rank_log_odds_R": low}))
    batch = batch_of(unsure, np.array([0]), np.array([[1]]))
    assert not batch.passes_BNL.any()
    last_masked = max(p for p in range(BLOCK) if data.row_SL[1][p] >= 0)
    assert batch.step_BNL[0, 0].nonzero().flatten().tolist() == [last_masked]


def test_what_a_filled_position_once_was_is_not_read() -> None:
    """Logits do not depend on what stands in the rows of positions that were filled when stale."""
    data, model, embeddings = trajectories(5, seed=6), small_model(), torch.randn(VOCAB, HIDDEN)
    table = model.project(embeddings)
    batch = batch_of(data, np.array([1]), np.array([[1]]))
    first = model(model.encode(batch.known, table), batch.states_BNL, table)
    filled = ~batch.known.stale.was_masked_BL
    batch.known.hidden_BLH[filled] = 7.0
    batch.known.scores_BLC[filled] = -2.0
    second = model(model.encode(batch.known, table), batch.states_BNL, table)
    torch.testing.assert_close(first.passes_BNL, second.passes_BNL)


def test_recordings_are_joined_row_by_row() -> None:
    parts = [trajectories(3, seed=7), trajectories(4, seed=8)]
    whole = concatenate(parts)
    own = batch_of(parts[1], np.array([0]), np.array([[1]]))
    joined = batch_of(whole, np.array([parts[0].num_states]), np.array([[1]]))
    assert torch.equal(own.known.candidates_BLC, joined.known.candidates_BLC)
    assert torch.equal(own.choice_BNL, joined.choice_BNL)


def test_fitted_temperatures_make_the_held_out_steps_likelier() -> None:
    data, model, embeddings = trajectories(60, seed=9), small_model(), torch.randn(VOCAB, HIDDEN)
    with torch.no_grad():
        model.pass_out.weight.mul_(30)  # far too sure
    table = model.project(embeddings)
    batch = draw_batch(data, 100, 2, np.random.default_rng(0))
    found = model(model.encode(batch.known, table), batch.states_BNL, table)
    passing, naming = fit_temperatures(found, batch)
    assert passing > 1.5
    update = {"pass_temperature": passing, "token_temperature": naming}
    fitted = small_model()
    fitted.load_state_dict(model.state_dict())
    fitted.config = model.config.model_copy(update=update)
    again = fitted(fitted.encode(batch.known, table), batch.states_BNL, table)
    assert batch_loss(again, batch, 0.0) < batch_loss(found, batch, 0.0)
