"""A real tracking server, a missing one, and many processes on a database that is not there yet."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.tracking import Tracking, check_store
from cluster.tracking.registry import Version, fetch, register
from cluster.tracking.uri import check_server
from tests.cluster.test_tracking import DATA, ROOT, child

SERVER_SECONDS = 120


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """``mlflow server`` on a database of its own, which hands out artifacts itself."""
    folder, port = tmp_path_factory.mktemp("server"), free_port()
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--workers", "1"]
    command += ["--port", str(port), "--backend-store-uri", f"sqlite:///{folder}/mlflow.db"]
    command += ["--artifacts-destination", str(folder / "artifacts")]
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    uri, ended = f"http://127.0.0.1:{port}", time.monotonic() + SERVER_SECONDS
    try:
        while not answers(uri):
            assert process.poll() is None
            assert time.monotonic() < ended
            time.sleep(0.2)
        yield uri
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def answers(uri: str) -> bool:
    try:
        check_server(uri)
    except ValueError:
        return False
    return True


@pytest.mark.slow
def test_runs_artifacts_and_versions_go_to_the_server_and_come_back(
    server: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    check_store(server)
    tracking = Tracking(server, tmp_path / "unused")
    parent = tracking.parent("remote", "runs/1: sweep of tiny")
    run_id = tracking.log_child(parent, child("a", nfe=3.0), DATA, None)
    other = Tracking(server, tmp_path / "unused")
    assert other.children(parent) == {"a": (run_id, "FINISHED")}
    assert other.get(run_id).metrics == {"nfe": 3.0}
    assert other.read(run_id, "trial.json") == "{}"
    register(tracking, Version("maskahead", run_id, "trial.json", "a", 1, {}), ["champion"])
    found = fetch(other, "models:/maskahead@champion", tmp_path / "out", 1)
    assert found.read_text() == "{}"
    assert [path.name for path in tmp_path.iterdir()] == ["out"], "artifacts lie on the server"
    assert capsys.readouterr().out == "", "what a command prints is its own"


def test_a_missing_server_is_named_within_seconds(tmp_path: Path) -> None:
    uri, started = f"http://127.0.0.1:{free_port()}", time.monotonic()
    with pytest.raises(ValueError, match=rf"{uri}.*no MLflow server answers there.*mlflow server"):
        Tracking(uri, tmp_path)
    assert time.monotonic() - started < 5


TOGETHER = """
import sys
from pathlib import Path
from cluster.tracking import Tracking
print("ready", flush=True)
sys.stdin.readline()
print(Tracking(sys.argv[1], Path("artifacts")).parent(sys.argv[2], sys.argv[2]))
"""


@pytest.mark.slow
def test_processes_that_touch_a_fresh_database_together_all_get_in(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/new/mlflow.db"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", TOGETHER, uri, str(number)],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    ended = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0] * 3, [said for _, said in ended]
    runs = {told.strip() for told, _ in ended}
    tracking = Tracking(uri, tmp_path)
    assert {run.run_id for run in map(tracking.get, runs)} == runs
    assert len(tracking.client.search_experiments(filter_string="name = 'maskahead'")) == 1
