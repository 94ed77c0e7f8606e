"""Training learns, stops and goes on as if it had never stopped."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from models.noising import Sample
from models.training import (
    CHECKPOINT,
    BatchSource,
    SampleAt,
    Trainer,
    TrainingConfig,
    batch_loss,
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


def copying(number: int) -> Sample:
    """Four tokens, then the same four again, and the stop id."""
    draw = random.Random(number)
    tokens = tuple(draw.choice((4, 5, 6)) for _ in range(4))
    return Sample(tokens, (*tokens, 2))


def uneven(number: int) -> Sample:
    """Two of three samples are short, one is long."""
    return Sample((4,) * (3 if number % 3 else 9), (5, 2))


def fresh(seed: int = 0) -> Transformer:
    model = Transformer(tiny_spec())
    init_weights(model, seed)
    return model


def trained(
    folder: Path,
    steps: int,
    model: Transformer | None = None,
    sample_at: SampleAt = copying,
    **changes: object,
) -> Trainer:
    """A trainer that resumed whatever lies in ``folder`` and ran up to ``steps``."""
    config = CONFIG.model_copy(update={"steps": steps, "cooldown": 0} | changes)
    trainer = Trainer(model or fresh(), sample_at, config, folder)
    trainer.resume()
    trainer.run(lambda row: None)
    return trainer


def test_thirty_steps_learn(tmp_path: Path) -> None:
    rows: list[dict] = []
    trainer = Trainer(fresh(), copying, CONFIG, tmp_path)
    trainer.run(rows.append)
    assert [row["step"] for row in rows] == [10, 20, 30]
    losses = [row["loss"] for row in rows]
    assert losses[0] > losses[1] > losses[2]
    assert losses[2] < 0.7 * losses[0]
    assert all(row["seconds_per_step"] > 0 for row in rows)


@pytest.mark.parametrize(("sample_at", "lengths"), [(copying, (16,)), (uneven, (8, 16))])
def test_a_resumed_run_continues_bit_by_bit(
    tmp_path: Path, sample_at: SampleAt, lengths: tuple[int, ...]
) -> None:
    """With two lengths, samples of one wait while a batch of the other is full."""
    case: dict[str, Any] = {"sample_at": sample_at, "lengths": lengths, "checkpoint_every": 1}
    through = trained(tmp_path / "through", 9, **case)
    half = trained(tmp_path / "halves", 4, **case)
    assert bool(half.source.waiting) == (len(lengths) == 2)
    resumed = trained(tmp_path / "halves", 9, fresh(seed=9), **case)
    assert resumed.step == through.step
    assert resumed.source.next_sample == through.source.next_sample
    assert resumed.source.waiting == through.source.waiting
    for (name, one), other in zip(
        through.model.named_parameters(), resumed.model.parameters(), strict=True
    ):
        assert torch.equal(one, other), name


def test_resume_says_what_it_found(tmp_path: Path) -> None:
    assert Trainer(fresh(), copying, CONFIG, tmp_path).resume() == "nothing: a fresh run"
    trained(tmp_path, 10)
    assert Trainer(fresh(), copying, CONFIG, tmp_path).resume() == "full checkpoint at step 10"
    (tmp_path / CHECKPOINT).unlink()
    assert Trainer(fresh(), copying, CONFIG, tmp_path).resume() == "weights alone, at step 10"


def test_weights_alone_are_enough_to_go_on(tmp_path: Path) -> None:
    """The optimizers start anew; steps, samples and what was learnt go on."""
    half = trained(tmp_path, 20)
    kept = {name: p.detach().clone() for name, p in half.model.named_parameters()}
    (tmp_path / CHECKPOINT).unlink()
    model = fresh(seed=5)
    model.load_state_dict(kept)
    trainer = Trainer(model, copying, CONFIG.model_copy(update={"cooldown": 0}), tmp_path)
    trainer.resume()
    assert (trainer.step, trainer.source.next_sample) == (20, half.source.next_sample)
    rows: list[dict] = []
    trainer.run(rows.append)
    assert [row["step"] for row in rows] == [30]
    scratch: list[dict] = []
    Trainer(fresh(), copying, CONFIG, tmp_path / "scratch").run(scratch.append)
    assert rows[0]["loss"] < scratch[0]["loss"]


def test_an_interrupted_write_leaves_the_old_checkpoint_whole(tmp_path: Path) -> None:
    trained(tmp_path, 10)
    (tmp_path / f"{CHECKPOINT}.partial").write_bytes(b"half")
    assert Trainer(fresh(), copying, CONFIG, tmp_path).resume() == "full checkpoint at step 10"


def test_samples_go_to_the_shortest_length_that_holds_them() -> None:
    config = CONFIG.model_copy(update={"lengths": (16, 8), "batch_size": 3})
    source = BatchSource(uneven, tiny_spec(), config)
    assert [source.next().clean_BT.shape[1] for _ in range(6)] == [8, 16, 8, 8, 16, 8]


def test_samples_beyond_every_length_are_left_out() -> None:
    source = BatchSource(uneven, tiny_spec(), CONFIG.model_copy(update={"lengths": (8,)}))
    batches = [source.next() for _ in range(3)]
    assert all(batch.clean_BT.shape == (4, 8) for batch in batches)
    assert source.next_sample == 18  # 12 short ones, and the 6 long ones among them
    assert source.waiting == []


def test_lengths_that_hold_no_sample_are_refused() -> None:
    source = BatchSource(lambda number: Sample((4,) * 20, (5, 2)), tiny_spec(), CONFIG)
    with pytest.raises(ValueError, match="lengths: 1000 samples in a row exceed 16 tokens"):
        source.next()


def test_the_schedule_warms_up_and_cools_down() -> None:
    config = CONFIG.model_copy(update={"steps": 20, "warmup": 4, "cooldown": 10})
    rates = [learning_rate_at(step, config) / config.learning_rate for step in range(20)]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    assert rates[4:11] == [1.0] * 7
    assert rates[11:] == pytest.approx([0.1 * left for left in range(9, 0, -1)])


def test_the_loss_is_the_mean_over_views_of_the_mean_over_masks() -> None:
    model = fresh()
    batch = BatchSource(copying, model.spec, CONFIG).next()
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
