"""Tracking on a fresh SQLite store: one store, no stray runs, champions by alias."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.tracking import ChildRun, DataSource, Tracking, parse_model_uri, tracking_uri

DATA = DataSource("heldout", "abc123", '{"seed": 7}')
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def tracking(store: Path) -> Tracking:
    """One store for the module: making the tables takes seconds."""
    return Tracking(f"sqlite:///{store}/mlflow.db", store / "artifacts")


def child(trial_id: str, outcome: str = "FINISHED", **metrics: float) -> ChildRun:
    tags = {"error": "RuntimeError: out of memory"} if outcome == "FAILED" else {}
    return ChildRun(
        trial_id, f"run {trial_id}", {"budget": 4}, metrics, tags, outcome, {}, 100.0, 107.5
    )  # pyright: ignore[reportArgumentType] - a literal by parametrization


def test_the_store_is_a_database_in_runs_with_an_absolute_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    assert tracking_uri(Path("runs")) == f"sqlite:///{tmp_path}/runs/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///own/mlflow.db")
    assert tracking_uri(Path("runs")) == f"sqlite:///{tmp_path}/own/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracking:5000")
    assert tracking_uri(Path("runs")) == "http://tracking:5000"


@pytest.mark.parametrize("uri", ["./mlruns", "mlruns", "file:///tmp/mlruns", "/tmp/mlruns"])
def test_a_store_of_files_is_refused_with_what_to_write(
    monkeypatch: pytest.MonkeyPatch, uri: str
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(ValueError, match=r"is a folder.*sqlite:///PATH/mlflow\.db"):
        tracking_uri(Path("runs"))


def test_a_parent_is_found_again_by_its_sweep(tracking: Tracking) -> None:
    first = tracking.parent("sweep-1", "one")
    tracking.finish(first, "KILLED")
    assert tracking.parent("sweep-1", "one") == first
    assert tracking.client.get_run(first).info.status == "RUNNING"
    assert tracking.parent("sweep-2", "one") != first


def test_each_child_holds_its_own_parameters_metrics_and_data(tracking: Tracking) -> None:
    parent = tracking.parent("children", "children")
    ids = [
        tracking.log_child(parent, child(name, nfe=value), DATA, None)
        for name, value in (("a", 1.0), ("b", 2.0))
    ]
    for run_id, value in zip(ids, (1.0, 2.0), strict=True):
        run = tracking.client.get_run(run_id)
        assert run.info.status == "FINISHED"
        assert (run.info.start_time, run.info.end_time) == (100_000, 107_500), "the trial's own"
        assert run.data.params == {"budget": "4"}
        assert run.data.metrics == {"nfe": value}
        assert run.data.tags["mlflow.parentRunId"] == parent
        assert run.inputs is not None
        assert [d.dataset.digest for d in run.inputs.dataset_inputs] == ["abc123"]
    assert tracking.children(parent) == {"a": (ids[0], "FINISHED"), "b": (ids[1], "FINISHED")}


def test_a_failed_trial_is_a_failed_run_with_its_reason(tracking: Tracking) -> None:
    parent = tracking.parent("failing", "failing")
    run_id = tracking.log_child(parent, child("x", "FAILED"), DATA, None)
    run = tracking.client.get_run(run_id)
    assert run.info.status == "FAILED"
    assert run.data.tags["error"] == "RuntimeError: out of memory"


def test_a_run_that_a_kill_cut_short_is_completed_and_not_made_twice(tracking: Tracking) -> None:
    parent = tracking.parent("cut", "cut")
    tags = {"mlflow.parentRunId": parent, "trial_id": "a"}
    cut = tracking.client.create_run(tracking.experiment_id, tags=tags).info.run_id
    assert tracking.children(parent) == {"a": (cut, "RUNNING")}
    assert tracking.log_child(parent, child("a", nfe=3.0), DATA, cut) == cut
    assert tracking.children(parent) == {"a": (cut, "FINISHED")}


def test_a_failed_trial_that_was_tried_again_counts_as_finished(tracking: Tracking) -> None:
    parent = tracking.parent("again", "again")
    tracking.log_child(parent, child("a", "FAILED"), DATA, None)
    finished = tracking.log_child(parent, child("a"), DATA, None)
    assert tracking.children(parent) == {"a": (finished, "FINISHED")}


def test_the_champion_is_fetched_by_alias_and_by_version(
    tracking: Tracking, tmp_path: Path
) -> None:
    run_id = tracking.parent("registered", "registered")
    best = tmp_path / "best.yaml"
    best.write_text("decode: {method: chain}\n")
    tracking.log_files(run_id, [best])
    version = tracking.register_champion(run_id, best, "chain")
    assert tracking.register_champion(run_id, best, "chain") == version, "a resumed sweep's again"
    fetched = tracking.fetch_registered("models:/maskahead@champion", tmp_path / "by-alias")
    assert fetched.read_text() == best.read_text()
    by_version = tracking.fetch_registered(f"models:/maskahead/{version}", tmp_path / "by-version")
    assert by_version.read_text() == best.read_text()
    with pytest.raises(ValueError, match="holds no such version"):
        tracking.fetch_registered("models:/maskahead@loser", tmp_path)


@pytest.mark.parametrize("name", ["maskahead@champion", "models:/maskahead", "models:/a/best"])
def test_model_names_are_checked(name: str) -> None:
    with pytest.raises(ValueError, match="models:/NAME@ALIAS"):
        parse_model_uri(name)


SCRIPT = """
import sys
from pathlib import Path
from cluster.tracking import ChildRun, DataSource, Tracking, tracking_uri
tracking = Tracking(tracking_uri(Path("runs")), Path("runs/artifacts"))
parent = tracking.parent("elsewhere", "elsewhere")
child = ChildRun("t", "t", {}, {"x": 1.0}, {}, "FINISHED", {}, 1.0, 2.0)
tracking.log_child(parent, child, DataSource("d", "1", "{}"), None)
print(parent, tracking.children(parent)["t"][0])
"""


def test_an_exported_run_id_captures_nothing_and_nothing_lies_elsewhere(
    store: Path, tracking: Tracking, tmp_path: Path
) -> None:
    captured = tracking.client.create_run(tracking.experiment_id).info.run_id
    environment = os.environ | {
        "MLFLOW_RUN_ID": captured,
        "MLFLOW_TRACKING_URI": f"sqlite:///{store}/mlflow.db",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    parent, run_id = done.stdout.split()
    assert captured not in (parent, run_id)
    assert tracking.client.get_run(captured).data.metrics == {}
    assert tracking.client.get_run(run_id).data.tags["mlflow.parentRunId"] == parent
    assert list(tmp_path.iterdir()) == [], "one store, no stray files"
