"""Training learns, stops and goes on as if it had never stopped."""

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from models.noising import Sample
from models.training import (
    CHECKPOINT,
    Trainer,
    TrainingConfig,
    batch_loss,
    batches,
    init_weights,
    learning_rate_at,
)
from models.transformer import Transformer
from tests.conftest import tiny_spec

CONFIG = TrainingConfig(
    steps=30,
    warmup=5,
    cooldown=5,
    batch_size=4,
    noisy_blocks=4,
    lengths=(16,),
    matmul_dtype="float32",
    log_every=10,
    checkpoint_every=10,
    learning_rate=5e-3,
)


def copying(first: int) -> Iterator[Sample]:
    """Sample n: four tokens, then the same four again, and the stop id."""
    for index in itertools.count(first):
        draw = random.Random(index)
        tokens = tuple(draw.choice((4, 5, 6)) for _ in range(4))
        yield Sample(tokens, (*tokens, 2))


def fresh(seed: int = 0) -> Transformer:
    model = Transformer(tiny_spec())
    init_weights(model, seed)
    return model


def trained(folder: Path, steps: int, model: Transformer | None = None) -> Trainer:
    """A trainer that resumed whatever lies in ``folder`` and ran up to ``steps``."""
    config = CONFIG.model_copy(update={"steps": steps, "cooldown": 0})
    trainer = Trainer(model or fresh(), config, folder)
    trainer.resume()
    trainer.run(copying, lambda row: None)
    return trainer


def test_thirty_steps_learn(tmp_path: Path) -> None:
    rows: list[dict] = []
    trainer = Trainer(fresh(), CONFIG, tmp_path)
    trainer.run(copying, rows.append)
    assert [row["step"] for row in rows] == [10, 20, 30]
    losses = [row["loss"] for row in rows]
    assert losses[0] > losses[1] > losses[2]
    assert losses[2] < 0.7 * losses[0]
    assert all(row["seconds_per_step"] > 0 for row in rows)


def test_a_resumed_run_continues_bit_by_bit(tmp_path: Path) -> None:
    through = trained(tmp_path / "through", 20)
    trained(tmp_path / "halves", 10)
    resumed = trained(tmp_path / "halves", 20, fresh(seed=9))
    assert (resumed.step, resumed.next_sample) == (through.step, through.next_sample)
    for (name, one), other in zip(
        through.model.named_parameters(), resumed.model.parameters(), strict=True
    ):
        assert torch.equal(one, other), name


def test_resume_says_what_it_found(tmp_path: Path) -> None:
    assert Trainer(fresh(), CONFIG, tmp_path).resume() == "nothing: a fresh run"
    trained(tmp_path, 10)
    assert Trainer(fresh(), CONFIG, tmp_path).resume() == "full checkpoint at step 10"
    (tmp_path / CHECKPOINT).unlink()
    assert Trainer(fresh(), CONFIG, tmp_path).resume() == "weights alone, at step 10"


def test_weights_alone_are_enough_to_go_on(tmp_path: Path) -> None:
    """The optimizers start anew; steps, samples and what was learnt go on."""
    half = trained(tmp_path, 20)
    kept = {name: p.detach().clone() for name, p in half.model.named_parameters()}
    (tmp_path / CHECKPOINT).unlink()
    model = fresh(seed=5)
    model.load_state_dict(kept)
    trainer = Trainer(model, CONFIG.model_copy(update={"cooldown": 0}), tmp_path)
    trainer.resume()
    assert (trainer.step, trainer.next_sample) == (20, half.next_sample)
    rows: list[dict] = []
    trainer.run(copying, rows.append)
    assert [row["step"] for row in rows] == [30]
    scratch: list[dict] = []
    Trainer(fresh(), CONFIG, tmp_path / "scratch").run(copying, scratch.append)
    assert rows[0]["loss"] < scratch[0]["loss"]


def test_an_interrupted_write_leaves_the_old_checkpoint_whole(tmp_path: Path) -> None:
    trained(tmp_path, 10)
    (tmp_path / f"{CHECKPOINT}.partial").write_bytes(b"half")
    assert Trainer(fresh(), CONFIG, tmp_path).resume() == "full checkpoint at step 10"


def test_samples_go_to_the_shortest_length_that_holds_them() -> None:
    def alternating(first: int) -> Iterator[Sample]:
        for index in itertools.count(first):
            yield Sample((4,) * (3 if index % 2 else 9), (5, 2))

    config = CONFIG.model_copy(update={"lengths": (8, 16), "batch_size": 3})
    found = list(itertools.islice(batches(alternating, fresh(), config, 0), 4))
    lengths = [batch.clean_BT.shape[1] for _, batch in found]
    assert sorted(lengths) == [8, 8, 16, 16]
    assert [index for index, _ in found] == sorted(index for index, _ in found)


def test_a_sample_beyond_every_length_is_refused_by_number() -> None:
    def growing(first: int) -> Iterator[Sample]:
        for index in itertools.count(first):
            yield Sample((4,) * 4 * index, (5, 2))

    with pytest.raises(ValueError, match="sample 4 needs 20 tokens, more than 16"):
        list(batches(growing, fresh(), CONFIG.model_copy(update={"batch_size": 9}), 0))


def test_the_schedule_warms_up_and_cools_down() -> None:
    config = CONFIG.model_copy(update={"steps": 20, "warmup": 4, "cooldown": 10})
    rates = [learning_rate_at(step, config) / config.learning_rate for step in range(20)]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    assert rates[4:11] == [1.0] * 7
    assert rates[11:] == pytest.approx([0.1 * left for left in range(9, 0, -1)])


def test_the_loss_is_the_mean_over_views_of_the_mean_over_masks() -> None:
    model = fresh()
    _, batch = next(batches(copying, model, CONFIG, 0))
    views = []
    for row in range(4):
        for view in range(4):
            one = type(batch)(
                batch.clean_BT[row : row + 1],
                batch.noisy_BNL[row : row + 1, view : view + 1],
                batch.blocks_BN[row : row + 1, view : view + 1],
                batch.targets_BNL[row : row + 1, view : view + 1],
                (batch.noisy_BNL[row : row + 1, view : view + 1] == 3).float(),
            )
            views.append(batch_loss(model, one) / one.weights_BNL.sum())
    torch.testing.assert_close(batch_loss(model, batch), torch.stack(views).mean())


def test_initial_weights_are_seeded() -> None:
    one, same, other = fresh(1), fresh(1), fresh(2)
    for a, b in zip(one.parameters(), same.parameters(), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(one.lm_head.weight, other.lm_head.weight)
