"""``kill -9`` of the driver in the middle of a sweep, and ``--resume`` after it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from cluster.tracking import Tracking
from tune.config import SweepConfig

pytestmark = [pytest.mark.ray, pytest.mark.slow]

ROOT = Path(__file__).parents[2]


def start(config: Path, place: Path, *more: str) -> subprocess.Popen[str]:
    """``maskahead sweep`` in a process of its own, with a Ray of its own."""
    command = [sys.executable, "-m", "maskahead", "sweep", "--config", str(config), "--name", "k"]
    environment = {k: v for k, v in os.environ.items() if k != "MLFLOW_TRACKING_URI"}
    return subprocess.Popen(
        [*command, *more],
        cwd=place,
        env=environment | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_nothing_is_lost_and_nothing_runs_twice(sweep_config: SweepConfig, tmp_path: Path) -> None:
    config = tmp_path / "sweep.yaml"
    config.write_text(yaml.safe_dump(sweep_config.model_dump(mode="json")))
    trials = tmp_path / "runs" / "k" / "trials"
    baselines = len(sweep_config.rules)
    driver = start(config, tmp_path)
    while len(list(trials.glob("*.json"))) < baselines + 2:
        assert driver.poll() is None, driver.communicate()[0]
        time.sleep(0.05)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    assert not (trials.parent / "best.yaml").exists()
    stamps = {path: path.stat().st_mtime_ns for path in trials.glob("*.json")}

    resumed = start(config, tmp_path, "--resume")
    output, _ = resumed.communicate()
    assert resumed.returncode == 0, output
    for path, stamp in stamps.items():
        assert path.stat().st_mtime_ns == stamp, "a finished trial ran again"
    rows = json.loads((trials.parent / "sweep.json").read_text())["rows"]
    assert {path.stem for path in stamps} <= {row["key"] for row in rows}
    drafted = [
        r for r in rows if r["fidelity"] == "replay" and r["options"]["method"] != "standard"
    ]
    assert 1 <= len(drafted) <= sweep_config.replay.trials
    tracking = Tracking(f"sqlite:///{tmp_path}/runs/mlflow.db", tmp_path / "unused")
    runs = tracking.client.search_runs([tracking.experiment_id])
    ids = [run.data.tags["trial_id"] for run in runs if "trial_id" in run.data.tags]
    assert sorted(ids) == sorted(row["key"] for row in rows)
    parents = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    assert [run.info.status for run in parents] == ["FINISHED"]
