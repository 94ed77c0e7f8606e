"""Adopting a target: every stage once, from its traces to a champion with its own drafters."""

import json
from pathlib import Path

import pytest
import yaml

from cluster.configuration import RunConfig
from decoders.draft_graph import load_graphs
from models.config import TargetConfig
from tasks.train_order import train_order
from tests.text_target import save_text_target
from tune.adopt import AdoptConfig, adopt, calibrated_graph, claim, trained_order
from tune.config import LiveConfig, ReplayConfig, SweepConfig, TasksConfig
from tune.space_config import Range, SpaceConfig


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> AdoptConfig:
    """An adoption of seconds."""
    target = save_text_target(tmp_path_factory.mktemp("adopted") / "tiny", max_positions=1024)
    return AdoptConfig.model_validate(
        {
            "target": TargetConfig(path=str(target)),
            "tasks": ("words",),
            "train_problems": 2,
            "heldout_problems": 1,
            "model": {"width": 16, "layers": 1, "heads": 2, "feed_forward": 16},
            "training": {"steps": 2, "batch_size": 4},
            "sweep": SweepConfig(
                decode={"max_new_tokens": 16},
                tasks=TasksConfig(names=("words",), recorded=1, live=1),
                space=SpaceConfig(methods=("graph", "order"), budget=Range(least=1, most=4)),
                replay=ReplayConfig(trials=4, concurrency=1),
                live=LiveConfig(trials=1, repeats=1),
            ),
        }
    )


def test_stages_whose_results_are_there_are_not_done_again(
    config: AdoptConfig, tmp_path: Path
) -> None:
    told: list[dict] = []
    claim(tmp_path, config)
    order = trained_order(config, tmp_path, train_order, told.append)
    graph = calibrated_graph(config, tmp_path, told.append)
    assert json.loads((order / "card.json").read_text())["held_out"].keys() == {
        "heldout-cap1",
        "heldout-cap0.9",
    }
    assert [g.cap for g in load_graphs(graph).graphs] == [1.0, 0.9]
    assert [row for row in told if "recording" in row]
    before = [path.stat().st_mtime_ns for path in (order / "model.safetensors", graph)]
    told.clear()
    claim(tmp_path, config)
    trained_order(config, tmp_path, train_order, told.append)
    calibrated_graph(config, tmp_path, told.append)
    assert [path.stat().st_mtime_ns for path in (order / "model.safetensors", graph)] == before
    assert not [row for row in told if "recording" in row or "step" in row]


def test_a_folder_of_another_adoption_is_refused(config: AdoptConfig, tmp_path: Path) -> None:
    claim(tmp_path, config)
    with pytest.raises(ValueError, match="begun with another config; choose another"):
        claim(tmp_path, config.model_copy(update={"train_problems": 3}))
    other = save_text_target(tmp_path / "other", max_positions=512)
    with pytest.raises(ValueError, match="begun with another target and config"):
        claim(tmp_path, config.model_copy(update={"target": TargetConfig(path=str(other))}))


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("a/b", {}, "plain folder name"),
        ("x", {"target": TargetConfig(path="nowhere")}, "target.path 'nowhere'"),
        ("x", {"train_problems": 1}, "at least 2 problems"),
    ],
)
def test_what_a_later_stage_would_refuse_is_refused_first(
    config: AdoptConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    change: dict,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(ValueError, match=said):
        adopt(config.model_copy(update=change), name, "", lambda row: None)
    assert not list(tmp_path.glob("runs/adopt-*"))


def test_a_tracking_server_that_is_away_is_told_before_anything_is_recorded(
    config: AdoptConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    with pytest.raises(ValueError, match="no MLflow server answers there"):
        adopt(config, "x", "", lambda row: None)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("change", [{"tasks": ("wrods",)}, {"caps": (1.0, 1.0)}, {"caps": (7,)}])
def test_tasks_and_caps_are_checked_with_the_configuration(change: dict) -> None:
    with pytest.raises(ValueError, match=r"wrods|caps \["):
        AdoptConfig.model_validate(change)


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_an_adopted_target_has_a_champion_that_names_its_own_drafters(
    config: AdoptConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    outcome = adopt(config, "mine", "maskahead adopt --name mine", lambda row: None)
    assert outcome.champion is not None
    best = tmp_path / "runs" / "mine" / "best.yaml"
    found = RunConfig.model_validate(yaml.safe_load(best.read_text()))
    assert found.drafter.path == str(tmp_path / "runs" / "adopt-mine" / "order")
    assert found.drafter.graph == str(tmp_path / "runs" / "adopt-mine" / "graph.json")
    assert {row.options.method for row in outcome.rows} >= {"standard", "graph", "order"}
