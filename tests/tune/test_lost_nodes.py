"""Sweeps over two and four nodes with GPUs (on paper: the ranks decode on CPUs), with one rank a
target and with two: a node dies, the driver dies, the leases' process dies, and nothing is lost."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
import yaml
from ray.cluster_utils import Cluster
from ray.util.placement_group import placement_group, placement_group_table

from actors.group_setup import Share
from actors.target_group import TargetGroup, Waiting
from cluster.tracking import Tracking
from drafters.config import DrafterConfig
from models.config import TargetConfig
from tests.serve.own_processes import kill_own
from tune.config import SweepConfig

pytestmark = [pytest.mark.ray, pytest.mark.long]

ROOT = Path(__file__).parents[2]
PATIENCE = 900.0
"""Seconds until what does not end is called a hang, on a slow machine too."""
NODE: dict[str, Any] = {"num_cpus": 2, "num_gpus": 2, "object_store_memory": 80_000_000}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A head; its tests add nodes."""
    found = Cluster(initialize_head=True, head_node_args=NODE | {"include_dashboard": False})
    yield found
    found.shutdown()


Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(cluster: Cluster, tmp_path: Path) -> Iterator[Start]:
    """``maskahead sweep`` in a process of its own; what it tells goes to ``NAME.log``."""
    started: list[subprocess.Popen[bytes]] = []

    def run(name: str, values: dict[str, Any], *more: str) -> "subprocess.Popen[bytes]":
        config = tmp_path / f"{name}.yaml"
        config.write_text(yaml.safe_dump(values | {"cluster": {"address": cluster.address}}))
        words = ["sweep", "--config", str(config), "--name", name, *more]
        environment = {k: v for k, v in os.environ.items() if k != "MLFLOW_TRACKING_URI"}
        with (tmp_path / f"{name}.log").open("a") as log:
            driver = subprocess.Popen(
                [sys.executable, "-m", "maskahead", *words],
                cwd=tmp_path,
                env=environment | {"PYTHONPATH": str(ROOT)},
                stdout=log,
                stderr=log,
            )
        started.append(driver)
        return driver

    yield run
    for driver in started:
        driver.kill()


def until(happens: Callable[[], bool], driver: Any, log: Path) -> None:
    ended = time.monotonic() + PATIENCE
    while not happens():
        assert driver.poll() is None, log.read_text()
        assert time.monotonic() < ended, log.read_text()
        time.sleep(0.1)


def live_rows(folder: Path) -> list[dict[str, Any]]:
    rows = [json.loads(path.read_text()) for path in folder.glob("trials/[!.]*.json")]
    return [row for row in rows if row["fidelity"] == "live"]


def test_a_lost_node_and_a_killed_driver_cost_nothing(
    cluster: Cluster, start: Start, sweep_config: SweepConfig, tmp_path: Path
) -> None:
    second_node = cluster.add_node(**NODE)
    values = sweep_config.model_dump(mode="json")
    values["space"] |= {"temperature": [0.0], "methods": ["chain"]}
    values["target"] |= {"tp": 2}
    values["live"] |= {"trials": 6, "repeats": 2}
    values["replay"] |= {"trials": 10}
    values["pool"] = {"gpus_per_rank": 1}
    folder, log = tmp_path / "runs" / "wide", tmp_path / "wide.log"

    driver = start("wide", values)
    until(lambda: len({row["node"] for row in live_rows(folder)}) == 2, driver, log)
    cluster.remove_node(second_node, allow_graceful=False)
    before = len(live_rows(folder))
    until(lambda: len(live_rows(folder)) > before, driver, log)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    stamps = {path: path.stat().st_mtime_ns for path in folder.glob("trials/[!.]*.json")}
    assert (folder / "leaderboard.csv").exists(), "results are there before the sweep ends"

    resumed = start("wide", values, "--resume")
    assert resumed.wait(PATIENCE) == 0, log.read_text()
    for path, stamp in stamps.items():
        assert path.stat().st_mtime_ns == stamp, "a finished trial ran again"
    rows = check_whole(tmp_path, "wide")
    assert {path.stem for path in stamps} <= {row["key"] for row in rows}
    assert len({row["node"] for row in live_rows(folder)}) == 2


def test_four_nodes_of_which_one_is_lost_and_the_process_that_leases_targets_too(
    cluster: Cluster, start: Start, sweep_config: SweepConfig, tmp_path: Path
) -> None:
    first, *_ = [cluster.add_node(**NODE) for _ in range(3)]
    values = sweep_config.model_dump(mode="json")
    values["space"] |= {"temperature": [0.0, 0.8], "methods": ["chain"]}
    values["live"] |= {"trials": 12, "repeats": 2}
    values["replay"] |= {"trials": 16}
    values["pool"] = {"gpus_per_rank": 2}  # a node holds one target
    folder, log = tmp_path / "runs" / "four", tmp_path / "four.log"

    driver = start("four", values)
    until(lambda: len(nodes_up(log)) == 4 and len(live_rows(folder)) > 0, driver, log)
    cluster.remove_node(first, allow_graceful=False)
    before = len(live_rows(folder))
    until(lambda: len(live_rows(folder)) > before, driver, log)
    kill_own("LeaseDesk")
    assert driver.wait(PATIENCE) == 0, log.read_text()
    assert "the process that leases groups was lost" in log.read_text()
    assert len(set(nodes_up(log))) == 4
    rows = check_whole(tmp_path, "four")
    assert len({row["node"] for row in rows if row["fidelity"] == "live"}) >= 3


def nodes_up(log: Path) -> list[str]:
    """The nodes on which targets came up, as the driver told."""
    return re.findall(r"up on node (\w+)", log.read_text())


def check_whole(place: Path, name: str) -> list[dict[str, Any]]:
    """The rows of a sweep that lost nothing: none has failed, and each has one run in MLflow."""
    rows = json.loads((place / "runs" / name / "sweep.json").read_text())["rows"]
    assert {row["status"] for row in rows} <= {"done", "stopped"}
    tracking = Tracking(f"sqlite:///{place}/runs/mlflow.db", place / "unused")
    runs = tracking.client.search_runs([tracking.experiment_id], max_results=500)
    ids = [run.data.tags["trial_id"] for run in runs if "trial_id" in run.data.tags]
    assert sorted(ids) == sorted(row["key"] for row in rows), "one run each"
    return rows


def test_the_place_of_an_idle_target_on_a_lost_node_keeps_nobody_from_being_placed(
    cluster: Cluster,
) -> None:
    node = cluster.add_node(**NODE)
    ray.init(address=cluster.address, log_to_driver=False)
    try:
        target, share = TargetConfig(path="sdar-tiny"), Share(gpus=2)
        groups = [TargetGroup.create(target, DrafterConfig(), (), share=share) for _ in range(2)]
        for group in groups:
            group.bring_up(Waiting())
        cluster.remove_node(node, allow_graceful=False)
        until_marked = time.monotonic() + 60
        while sum(node["Alive"] for node in ray.nodes()) > 1 and time.monotonic() < until_marked:
            time.sleep(0.5)
        assert placement_group([{"CPU": 1}]).wait(30)
        told = [entry["state"] for entry in placement_group_table().values() if entry["name"]]
        assert sorted(told) == ["CREATED", "REMOVED"]
    finally:
        ray.shutdown()


def test_three_groups_of_one_rank_do_not_fit_on_one_node_and_use_both(
    cluster: Cluster, start: Start, sweep_config: SweepConfig, tmp_path: Path
) -> None:
    cluster.add_node(**NODE)
    values = sweep_config.model_dump(mode="json")
    values["space"] |= {"temperature": [0.0, 0.8], "methods": ["chain"]}
    values["live"] |= {"trials": 4, "repeats": 2}
    values["pool"] = {"gpus_per_rank": 1, "groups": 3}
    log = tmp_path / "narrow.log"
    assert start("narrow", values).wait(PATIENCE) == 0, log.read_text()
    rows = live_rows(tmp_path / "runs" / "narrow")
    assert {row["status"] for row in rows} <= {"done", "stopped"}
    nodes = nodes_up(log)
    assert (len(nodes), len(set(nodes))) == (3, 2)
    assert {row["node"][:8] for row in rows} <= set(nodes)
