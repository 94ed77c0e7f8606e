"""Training an order model from a configuration: recorded, learnt, calibrated, measured, resumed."""

import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch

from actors.loading import open_engine
from decoders.options import DecodeOptions
from decoders.prompts import PromptRow
from decoders.proposers.base import View
from decoders.proposers.order import stack_stale
from decoders.state import fill
from drafters.bundle import load_order_model
from drafters.config import DrafterConfig
from drafters.features import StaleTensors
from drafters.order_data import batch_of
from models.config import TargetConfig
from tasks.drafter_training import PROGRESS
from tasks.train_order import TrainOrderConfig, ids_help, order_data, train_order
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
    assert model.reads_tokens == card["reads_tokens"]
    assert card["held_out"]["heldout"]["with_tokens_hidden"].keys() == accuracy.keys()
    assert not (out / PROGRESS).exists()


@pytest.mark.parametrize(("hidden", "helps"), [(0.45, True), (0.505, True), (0.55, False)])
def test_ids_are_read_unless_they_mislead(hidden: float, helps: bool) -> None:
    def rows(share: float) -> dict[str, dict[str, float]]:
        return {"1": {"model": share + 0.1}, "2": {"model": share - 0.1}}

    found = {"next_commit_accuracy_by_depth": rows(0.5), "with_tokens_hidden": rows(hidden)}
    assert ids_help(found) == helps


def test_what_is_learnt_from_is_what_drafting_reads(folder: Path) -> None:
    """The same state laid out by the trainer and by the proposer: every field, ids included."""
    engine = open_engine(TargetConfig(path=str(folder / "target")), DrafterConfig(), [])
    rows = [PromptRow(id=str(i), prompt=text) for i, text in enumerate(("one two", "a", "three 4"))]
    checked = 0
    for cap in (1.0, 0.9):
        traces = engine.record(rows, DecodeOptions(max_new_tokens=24, cap=cap))
        states = [(t, b, s) for t in traces for b in t.blocks for s in b.states]
        whole = np.arange(len(states))
        learnt = batch_of(order_data(traces), whole, np.ones((len(states), 1), dtype=np.int64))
        for index, (trace, block, traced) in enumerate(states):
            view = View(
                root=fill(traced.state, traced.step),
                stale=traced.stale,
                options=trace.request.options,
                end=block.end,
            )
            drafted = stack_stale([view])
            for field in fields(StaleTensors):
                one, other = (getattr(x, field.name) for x in (drafted, learnt.stale))
                if one.is_floating_point():  # the trainer keeps probabilities in half precision
                    torch.testing.assert_close(one[0], other[index], rtol=2e-3, atol=2e-2)
                else:
                    assert torch.equal(one[0], other[index]), field.name
            checked += 1
    assert checked > 40


def test_an_unfinished_training_of_another_configuration_is_refused(folder: Path) -> None:
    """Its weights would be told as this one's."""

    def interrupt(row: dict) -> None:
        if row.get("step") == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_order(config(folder, steps=8), interrupt)
    for section, change in (("model", {"token_buckets": 0}), ("training", {"steps": 4})):
        other = config(folder, steps=8).model_dump()
        other[section] |= change
        with pytest.raises(ValueError, match=r"out .* unfinished training of another config"):
            train_order(TrainOrderConfig.model_validate(other), lambda row: None)


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
