"""Tracking on a fresh SQLite store: one store, no stray runs, each found again by its name."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import typer

from cluster.exits import FAILURE, run_app
from cluster.log_queue import LogQueue
from cluster.passwords import without_passwords
from cluster.tracking import ChildRun, DataSource, Tracking, tracking_uri
from cluster.tracking.machine import gpus, machine_metrics
from cluster.tracking.uri import check_server, database_file
from tests.cluster.test_log_queue import away

DATA = DataSource("heldout", "abc123", '{"seed": 7}')
ROOT = Path(__file__).parents[2]


def child(trial_id: str, outcome: str = "FINISHED", **metrics: float) -> ChildRun:
    tags = {"error": "RuntimeError: out of memory"} if outcome == "FAILED" else {}
    return ChildRun(
        trial_id, f"run {trial_id}", {"budget": 4}, metrics, tags, outcome, {}, 100.0, 107.5
    )  # pyright: ignore[reportArgumentType] - a literal by parametrization


def test_the_experiment_opens_on_its_runs_one_of_an_earlier_version_too(
    tracking: Tracking, tmp_path: Path
) -> None:
    kind, experiment = "mlflow.experimentKind", tracking.experiment_id
    assert tracking.client.get_experiment(experiment).tags[kind] == "custom_model_development"
    tracking.client.delete_experiment_tag(experiment, kind)
    assert Tracking(tracking.uri, tmp_path).experiment_id == experiment
    assert tracking.client.get_experiment(experiment).tags[kind] == "custom_model_development"


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


@pytest.mark.parametrize("uri", ["sqlite://", "sqlite:///", "sqlite:///:memory:"])
def test_a_store_that_would_end_with_its_process_is_refused(
    monkeypatch: pytest.MonkeyPatch, uri: str
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(ValueError, match=r"names no file.*sqlite:///PATH/mlflow\.db"):
        tracking_uri(Path("runs"))


def test_a_password_is_not_shown() -> None:
    shown = "postgresql://me:***@host:5432/db"
    assert without_passwords("postgresql://me:pa:ss@host:5432/db") == shown
    for uri in ("sqlite:////x/mlflow.db", "http://tracking:5000", "postgresql://me@host/db"):
        assert without_passwords(uri) == uri
    told = "API request to https://me:secret@host/api failed, https://a:secret@c too"
    hidden = "API request to https://me:***@host/api failed, https://a:***@c too"
    assert without_passwords(told) == hidden


def test_what_goes_wrong_with_a_store_is_told_without_its_password(
    tracking: Tracking, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    secret, told = "s3cret", list[str]()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"postgres://me:{secret}@host/db")
    for ask in (
        lambda: tracking_uri(Path("runs")),
        lambda: check_server(f"http://me:{secret}@127.0.0.1:1"),
    ):
        with pytest.raises(ValueError, match="MLFLOW_TRACKING_URI") as refused:
            ask()
        told.append(str(refused.value))

    def fail(_: object = None) -> None:
        raise RuntimeError(f"API request to https://me:{secret}@host/api failed")

    LogQueue(fail, told.append, "trials", "--resume").add(None)
    run_id = tracking.parent("secretive", "secretive")
    with pytest.raises(RuntimeError), tracking.lasting(run_id):
        fail()
    told.append(tracking.get(run_id).tags["error"])
    app = typer.Typer()
    app.command()(lambda: fail())
    assert run_app(app, []) == FAILURE
    told.append(capsys.readouterr().err)
    for each in told:
        assert "me:***@" in each
        assert secret not in each


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
        tracking.log_child(
            parent, replace(child(name, nfe=value), params={knob: value}), DATA, None
        )
        for name, knob, value in (("a", "budget", 1.0), ("b", "gamma", 2.0))
    ]
    for run_id, knob, value in zip(ids, ("budget", "gamma"), (1.0, 2.0), strict=True):
        run = tracking.client.get_run(run_id)
        assert run.info.status == "FINISHED"
        assert (run.info.start_time, run.info.end_time) == (100_000, 107_500), "the trial's own"
        assert run.data.params == {knob: str(value)}
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
    cut = tracking.begin_child(parent, child("a"))
    assert tracking.children(parent) == {"a": (cut, "RUNNING")}, "a kill cut its second try short"
    finished = tracking.log_child(parent, child("a"), DATA, cut)
    assert tracking.children(parent) == {"a": (finished, "FINISHED")}


def test_a_child_begins_and_ends_when_its_trial_did(tracking: Tracking) -> None:
    parent = tracking.parent("times", "times")
    timed = replace(child("t"), started=1_700_000_007.5, ended=1_700_000_010.0)
    run = tracking.get(tracking.log_child(parent, timed, DATA, None))
    assert (run.started, run.ended) == (1_700_000_007.5, 1_700_000_010.0)


def test_a_table_of_problems_is_one_that_mlflow_shows(tracking: Tracking) -> None:
    parent = tracking.parent("tables", "tables")
    told = replace(child("t"), problems={"problem": ["a", "b"], "correct": [True, False]})
    run_id = tracking.log_child(parent, told, DATA, None)
    table = json.loads(tracking.read(run_id, "problems.json") or "")
    assert table == {"columns": ["problem", "correct"], "data": [["a", True], ["b", False]]}
    shown = json.loads(tracking.get(run_id).tags["mlflow.loggedArtifacts"])
    assert shown == [{"path": "problems.json", "type": "table"}]


def test_runs_are_found_by_id_name_and_folder(tracking: Tracking) -> None:
    parent = tracking.parent("found", "runs/7: sweep of tiny")
    tracking.log(parent, {}, {}, {"folder": "runs/7"})
    for named in (parent, "runs/7: sweep of tiny", "runs/7", "7", "runs/7/"):
        assert tracking.find(named).run_id == parent
    trial = tracking.log_child(parent, replace(child("t"), name="live: chain 4"), DATA, None)
    assert tracking.find("live: chain 4").run_id == trial
    twice = tracking.log_child(parent, replace(child("u"), name="live: chain 4"), DATA, None)
    with pytest.raises(ValueError, match="may be any of") as told:
        tracking.find("live: chain 4")
    assert trial in str(told.value)
    assert twice in str(told.value)
    with pytest.raises(ValueError, match=r"'8': the store holds no such run.*runs/7"):
        tracking.find("8")
    with pytest.raises(ValueError, match="holds no such run"):
        tracking.find("0" * 32)


def test_the_machine_is_watched_while_a_run_lasts(tracking: Tracking) -> None:
    run_id = tracking.parent("watched", "watched")
    with machine_metrics(tracking, run_id, every=0.05):
        time.sleep(0.4)
    found = tracking.get(run_id).metrics
    assert 0 <= found["system/cpu_utilization_percentage"] <= 100
    assert 0 < found["system/system_memory_usage_percentage"] < 100
    assert found["system/driver_memory_megabytes"] > 10
    name = "system/cpu_utilization_percentage"
    steps = [m.step for m in tracking.client.get_metric_history(run_id, name)]
    assert steps[:2] == [0, 1]
    time.sleep(0.1)
    assert len(tracking.client.get_metric_history(run_id, name)) == len(steps), "it has ended"


def test_a_store_that_is_away_misses_samples_and_the_next_ones_come_in(
    tracking: Tracking,
) -> None:
    run_id = tracking.parent("unwatched", "unwatched")
    with machine_metrics(tracking, run_id, every=0.02):
        with away(database_of(tracking)):
            time.sleep(0.3)
        ended = time.monotonic() + 20
        while not tracking.get(run_id).metrics:
            assert time.monotonic() < ended
            time.sleep(0.05)


def database_of(tracking: Tracking) -> Path:
    """The folder of its database."""
    file = database_file(tracking.uri)
    assert file is not None
    return file.parent


def test_a_run_lasts_as_long_as_its_block_and_says_how_that_ended(tracking: Tracking) -> None:
    run_id = tracking.parent("lasting", "lasting")

    def ended(*errors: BaseException) -> tuple[str, str | None]:
        for error in errors:
            with pytest.raises(type(error), match=str(error)), tracking.lasting(run_id):
                raise error
        run = tracking.get(run_id)
        return run.status, run.tags.get("error")

    assert ended(KeyboardInterrupt("Ctrl-C")) == ("KILLED", None)
    assert ended(OSError("disk full")) == ("FAILED", "OSError: disk full")
    with (
        away(database_of(tracking)),
        pytest.raises(RuntimeError, match="start the store again"),
        tracking.lasting(run_id),
    ):
        raise RuntimeError("start the store again, and --resume")
    with tracking.lasting(run_id):
        pass
    assert ended() == ("FINISHED", None)


def test_what_nvidia_smi_says_becomes_metrics_and_what_it_does_not_know_none() -> None:
    assert gpus("0, 97, 1000, 4000\n1, [N/A], 10, 4000\n") == {
        "system/gpu_0_utilization_percentage": 97.0,
        "system/gpu_0_memory_usage_megabytes": 1000.0,
        "system/gpu_0_memory_usage_percentage": 25.0,
        "system/gpu_1_memory_usage_megabytes": 10.0,
        "system/gpu_1_memory_usage_percentage": 0.25,
    }
    assert gpus("") == {}
    assert gpus("NVIDIA-SMI has failed because it couldn't find a driver, a, b, c.\n") == {}
    assert gpus("Make sure that the latest NVIDIA driver is installed and running.\n\n") == {}


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
    tracking: Tracking, tmp_path: Path
) -> None:
    captured = tracking.client.create_run(tracking.experiment_id).info.run_id
    environment = os.environ | {
        "MLFLOW_RUN_ID": captured,
        "MLFLOW_TRACKING_URI": tracking.uri,
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
