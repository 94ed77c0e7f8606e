"""Training a sets model from a configuration: recorded, learnt, measured, resumed, calibrated."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from actors.loading import open_engine
from decoders.options import DecodeOptions
from decoders.prompts import PromptRow
from decoders.proposers.base import View
from decoders.proposers.sets import stack_views
from decoders.trace_store import TraceStore
from drafters.config import DrafterConfig
from drafters.sets_bundle import load_sets_model
from drafters.sets_data import batch_of
from models.checkpoint import find_checkpoint, read_spec
from models.config import TargetConfig
from models.embeddings import read_embeddings
from models.loading import load_model
from tasks.drafter_training import PROGRESS
from tasks.train_sets import TrainSetsConfig, sets_data, train_sets
from tests.text_target import save_text_target


def config(folder: Path, steps: int = 3, **more: object) -> TrainSetsConfig:
    recording = {"tasks": ["words"], "seed": 1, "tau": 0.02}
    return TrainSetsConfig.model_validate(
        {
            "out": str(folder / "sets"),
            "traces": str(folder / "traces"),
            "target": {"path": str(folder / "target"), "dtype": "float32"},
            "recordings": [
                {"name": "train", "split": "train", "count": 3} | recording,
                {"name": "heldout", "split": "heldout", "count": 1} | recording,
            ],
            "model": {"width": 16, "layers": 1, "heads": 2, "feed_forward": 16, "token_width": 8},
            "training": {"steps": steps, "batch_size": 8, "log_every": 2},
        }
        | more
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("train-sets")
    save_text_target(folder / "target", max_positions=2048)
    train_sets(config(folder), lambda row: None)
    return folder


def test_a_drafter_comes_out_with_a_card_of_held_out_accuracy(folder: Path) -> None:
    out = folder / "sets"
    model, card = load_sets_model(out), json.loads((out / "card.json").read_text())
    assert card["parameters"] == model.num_parameters
    assert str(folder) not in json.dumps(card), "a model's facts, not this machine's"
    assert card["config"]["training"]["steps"] == 3
    assert "cross-entropy" in card["loss"]
    for found in card["held_out"]["heldout"]["accuracy_by_depth"].values():
        assert {"token", "stale_argmax", "steps", "n", "tokens"} <= found.keys()
    assert not (out / PROGRESS).exists()


def test_what_is_learnt_from_is_what_drafting_reads(folder: Path) -> None:
    trace, block = next(
        (trace, block)
        for trace in TraceStore(folder / "traces" / "train").load()
        for block in trace.blocks
        if len(block.states) > 1
    )
    data = sets_data([trace])
    first = sum(len(b.states) for b in trace.blocks[: trace.blocks.index(block)])
    batch = batch_of(data, np.array([first]), np.array([[1]]))
    view = View(block.states[1].state, block.states[0].stale, trace.request.options, block.end)
    known = stack_views([view])
    torch.testing.assert_close(known.hidden_BLH, batch.known.hidden_BLH)
    torch.testing.assert_close(known.candidates_BLC, batch.known.candidates_BLC)
    torch.testing.assert_close(known.scores_BLC, batch.known.scores_BLC)
    own, learnt = known.stale, batch.known.stale
    torch.testing.assert_close(own.cap_log_odds_B, learnt.cap_log_odds_B)
    torch.testing.assert_close(own.rank_log_odds_BL, learnt.rank_log_odds_BL)
    torch.testing.assert_close(own.log_probs_BLK, learnt.log_probs_BLK, rtol=1e-3, atol=1e-2)
    assert torch.equal(own.was_masked_BL, learnt.was_masked_BL)
    assert torch.equal(own.prompt_tail_BL, learnt.prompt_tail_BL)


def test_it_drafts_for_its_target_and_the_text_stays_that_of_threshold_decoding(
    folder: Path,
) -> None:
    target = TargetConfig(path=str(folder / "target"), dtype="float32")
    drafter = DrafterConfig(path=str(folder / "sets"))
    engine = open_engine(target, drafter, ["sets"])
    rows = [PromptRow(id="1", prompt="two apples"), PromptRow(id="2", prompt="three")]
    sets = DecodeOptions(method="sets", tau=0.02, budget=6, max_new_tokens=24)
    free = engine.generate(rows, sets.draft_free())
    assert [row["token_ids"] for row in engine.generate(rows, sets)] == [
        row["token_ids"] for row in free
    ]


def test_a_drafter_of_another_target_is_refused_until_it_is_calibrated(
    folder: Path, tmp_path: Path
) -> None:
    save_text_target(tmp_path / "target", max_positions=2048, seed=5)
    target = TargetConfig(path=str(tmp_path / "target"), dtype="float32")
    drafter = DrafterConfig(sets=str(folder / "sets"))
    with pytest.raises(ValueError, match=r"made for another target .*--from"):
        open_engine(target, drafter, ["sets"])
    old = load_sets_model(folder / "sets")
    out = train_sets(config(tmp_path, start_from=str(folder / "sets")), lambda row: None)
    new = load_sets_model(out)
    changed = {
        name
        for name, tensor in new.state_dict().items()
        if not torch.equal(tensor, old.state_dict()[name])
    }
    assert changed == {"hidden_in.weight", "token_in.weight"}
    open_engine(target, DrafterConfig(path=str(out)), ["sets"])


def test_training_goes_on_where_it_was_interrupted(folder: Path, tmp_path: Path) -> None:
    plan = config(tmp_path, steps=4, target={"path": str(folder / "target"), "dtype": "float32"})
    plan = plan.model_copy(update={"traces": str(folder / "traces")})

    def interrupt(row: dict) -> None:
        if row.get("step") == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_sets(plan, interrupt)
    assert (tmp_path / "sets" / PROGRESS).exists(), "what was learnt up to step 2"
    rows: list[dict] = []
    train_sets(plan, rows.append)
    assert [row["step"] for row in rows if "step" in row] == [4]


@pytest.mark.parametrize(
    ("recordings", "message"),
    [
        ([{"name": "a", "count": 3, "seed": 1}], "recordings.a: tau is missing"),
        ([{"name": "a", "count": 3, "seed": 1, "tau": 0.9, "split": "heldout"}], "split train"),
        ([{"name": "a", "count": 1, "seed": 1, "tau": 0.9, "tasks": ["words"]}], "at least 2"),
    ],
)
def test_recordings_that_cannot_be_learnt_from_are_refused_at_once(
    folder: Path, recordings: list[dict], message: str
) -> None:
    plan = config(folder, recordings=recordings)
    with pytest.raises(ValueError, match=message):
        train_sets(plan, lambda row: None)


def test_embeddings_are_those_of_the_loaded_network(folder: Path) -> None:
    target = TargetConfig(path=str(folder / "target"), dtype="float32")
    found = find_checkpoint(target.path)
    spec = read_spec(found, None, force=False)
    expected = load_model(target).embed_tokens.weight
    assert torch.equal(read_embeddings(found, spec), expected)
