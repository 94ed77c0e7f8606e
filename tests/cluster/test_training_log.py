"""What a drafter's training leaves in the store, on tiny real trainings."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from cluster.tracking import Tracking
from cluster.tracking.registry import fetch, find_version
from cluster.training_log import DRAFTER_FORMAT, by_step, find_registered, train_logged
from drafters.bundle import load_order_model
from models.digests import digest
from tasks.train_order import TrainOrderConfig, train_order
from tests.cluster.test_log_queue import away
from tests.tasks.test_train_order import config as tiny_config
from tests.text_target import save_text_target

COMMAND = "maskahead train order --config tiny.yaml"


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> TrainOrderConfig:
    folder = tmp_path_factory.mktemp("training")
    save_text_target(folder / "target", max_positions=2048)
    return tiny_config(folder, steps=4)


def ignore(facts: dict) -> None:
    """Reports that nobody reads."""


def test_a_training_is_a_run_with_its_loss_curve_its_card_and_a_version(
    tracking: Tracking, config: TrainOrderConfig, tmp_path: Path
) -> None:
    told: list[dict] = []
    train = partial(train_order, config)
    out, version = train_logged("order", config, train, told.append, tracking, COMMAND)
    run = tracking.get(version.run_id)
    assert (run.status, run.tags["command"]) == ("FINISHED", COMMAND)
    assert run.name.startswith("train order: target, ")
    assert run.params["training.steps"] == "4"
    losses = [(row["step"], row["loss"]) for row in told if "step" in row]
    history = tracking.client.get_metric_history(run.run_id, "loss")
    assert [(metric.step, metric.value) for metric in history] == losses
    depths = tracking.client.get_metric_history(
        run.run_id, "held_out/heldout/next_commit_accuracy_by_depth/model"
    )
    assert [metric.step for metric in depths] == list(range(1, 8))
    assert version.model == "maskahead-order"
    card = json.loads((out / "card.json").read_text())
    assert version.tags["target"] == card["target_digest"]
    assert version.tags["drafter"] == digest(out)
    assert len(version.tags["traces"]) == 16
    assert find_registered("order", out, tracking) == version
    assert find_registered("sets", out, tracking) is None
    assert find_version(tracking, "models:/maskahead-order/latest") == version
    fetched = fetch(tracking, version.uri, tmp_path / "fetched", DRAFTER_FORMAT)
    assert load_order_model(fetched, None).num_parameters == card["parameters"]


def test_a_training_that_was_cut_short_goes_on_in_its_run_and_a_new_one_has_its_own(
    tracking: Tracking, config: TrainOrderConfig
) -> None:
    def interrupted(report: object) -> Path:
        raise KeyboardInterrupt

    def broken(report: object) -> Path:
        raise OSError("disk full")

    slower = config.model_copy(update={"out": config.out + "-again"})
    with pytest.raises(KeyboardInterrupt):
        train_logged("order", slower, interrupted, ignore, tracking, COMMAND)
    cut = tracking.find(f"train order: target, {slower.out}")
    assert cut.status == "KILLED"
    with pytest.raises(OSError, match="disk full"):
        train_logged("order", slower, broken, ignore, tracking, COMMAND)
    failed = tracking.get(cut.run_id)
    assert (failed.status, failed.tags["error"]) == ("FAILED", "OSError: disk full")

    def trained(report: object) -> Path:
        return Path(config.out)  # of the first test

    _, version = train_logged("order", slower, trained, ignore, tracking, COMMAND)
    assert version.run_id == cut.run_id
    assert "error" not in tracking.get(cut.run_id).tags, "it went well in the end"
    _, again = train_logged("order", slower, trained, ignore, tracking, COMMAND)
    assert again.run_id != cut.run_id


def test_a_store_that_is_away_in_the_middle_of_a_training_gets_every_step_afterwards(
    config: TrainOrderConfig, tmp_path: Path
) -> None:
    tracking = Tracking(f"sqlite:///{tmp_path}/mlflow.db", tmp_path / "artifacts")
    told: list[dict] = []

    def trained(report: Callable[[dict], None]) -> Path:
        report({"step": 1, "of": 2, "loss": 3.0})
        with away(tmp_path, "metrics"):
            report({"step": 2, "of": 2, "loss": 2.0})
        return Path(config.out)  # of the first test

    _, version = train_logged("order", config, trained, told.append, tracking, COMMAND)
    assert "1 steps wait for it" in told[-1]["note"]
    history = tracking.client.get_metric_history(version.run_id, "loss")
    assert [(metric.step, metric.value) for metric in history] == [(1, 3.0), (2, 2.0)]


def test_depths_of_a_card_are_steps_and_names_keep_their_dots() -> None:
    card = {
        "parameters": 7,
        "config": {"steps": 3},
        "held_out": {
            "cap0.9": {"rule": "x", "by_depth": {"1": {"model": 0.5}, "2": {"model": 1.0}}}
        },
        "reads_tokens": True,
    }
    assert dict(by_step(card)) == {
        0: {"parameters": 7.0},
        1: {"held_out/cap0.9/by_depth/model": 0.5},
        2: {"held_out/cap0.9/by_depth/model": 1.0},
    }
