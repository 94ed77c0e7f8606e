"""Training an order model from a configuration: recorded, learnt, calibrated, measured, resumed."""

import json
from pathlib import Path

import pytest

from drafters.bundle import load_order_model
from tasks.train_order import PROGRESS, TrainOrderConfig, train_order
from tests.text_target import save_text_target


def config(folder: Path, steps: int) -> TrainOrderConfig:
    recording = {"tasks": ["words"], "seed": 1}
    return TrainOrderConfig.model_validate(
        {
            "out": str(folder / "order"),
            "traces": str(folder / "traces"),
            "target": {"path": str(folder / "target")},
            "recordings": [
                {"name": "train", "split": "train", "count": 4} | recording,
                {"name": "warm", "split": "train", "count": 2, "temperature": 1.0} | recording,
                {"name": "heldout", "split": "heldout", "count": 2} | recording,
            ],
            "model": {"width": 16, "layers": 1, "heads": 2, "feed_forward": 32},
            "training": {"steps": steps, "batch_size": 8, "log_every": 2},
        }
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_text_target(tmp_path / "target", max_positions=2048)
    return tmp_path


def test_a_drafter_comes_out_with_a_card_of_held_out_accuracy(folder: Path) -> None:
    rows: list[dict] = []
    out = train_order(config(folder, steps=4), rows.append)
    model = load_order_model(out, folder / "target")
    card = json.loads((out / "card.json").read_text())
    assert card["parameters"] == model.num_parameters
    assert str(folder) not in json.dumps(card), "a model's facts, not this machine's"
    accuracy = card["held_out"]["heldout"]["next_commit_accuracy_by_depth"]
    assert list(accuracy) == [str(depth) for depth in range(1, 8)], "a block of 8 has no more"
    for found in accuracy.values():
        assert 0 <= found["model"] <= 1
        assert 0 <= found["stale_order"] <= 1
    [told] = [row["temperature"] for row in rows if "temperature" in row]
    assert model.config.temperature == told
    [told] = [row["survival_scale"] for row in rows if "survival_scale" in row]
    assert model.config.survival_scale == told != 1.0
    assert model.reads_tokens
    assert card["held_out"]["heldout"]["with_tokens_hidden"].keys() == accuracy.keys()
    assert not (out / PROGRESS).exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"recordings": [{"name": "a", "count": 1, "seed": 1, "tasks": ["words"]}]}, "at least 2"),
        ({"recordings": [{"name": "a", "count": 2, "seed": 1}] * 2}, "each be there once"),
        ({"recordings": [{"name": "a", "count": 2, "seed": 1, "temperature": 1}]}, "temperature 0"),
    ],
)
def test_recordings_that_cannot_be_learnt_from_are_refused_before_anything_is_recorded(
    folder: Path, change: dict, said: str
) -> None:
    base = config(folder, steps=1).model_dump()
    with pytest.raises(ValueError, match=said):
        train_order(TrainOrderConfig.model_validate(base | change), lambda row: None)
    assert not (folder / "traces").exists()


def test_an_interrupted_training_goes_on_from_its_last_saved_step(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(row: dict) -> None:
        if row.get("step") == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_order(config(folder, steps=8), interrupt)
    rows: list[dict] = []
    train_order(config(folder, steps=8), rows.append)
    steps = [row["step"] for row in rows if "step" in row]
    assert steps == [4, 6, 8]
    assert not [row for row in rows if "recording" in row], "nothing is recorded twice"
