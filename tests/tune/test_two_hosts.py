"""Two hosts with a network between them: joined by token, told apart where they differ, both
used."""

import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.hosts import Host, two_hosts
from tests.cluster.test_commands import PRINTED, ROOT
from tests.tune.test_lost_nodes import live_rows
from tune.config import SweepConfig

pytestmark = [pytest.mark.ray, pytest.mark.long]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Host, Host]]:
    with two_hosts(tmp_path_factory) as found:
        yield found


@pytest.fixture(scope="module")
def printed(hosts: tuple[Host, Host]) -> Iterator[re.Match[str]]:
    """A head on the first host: the token, and the command to join it."""
    first, second = hosts
    try:
        done = first.run("cluster", "up", "--num-cpus", 2, "--num-gpus", 1)
        assert done.returncode == 0, done.stderr
        found = PRINTED.search(done.stderr)
        assert found, done.stderr
        assert f"{first.address}:6379" in found[2]
        yield found
    finally:
        for host in (second, first):
            host.run("cluster", "down")


def join(host: Host, printed: "re.Match[str]", **more: Any) -> None:
    done = host.run(*printed[2].split(), "--num-cpus", 2, "--num-gpus", 1, token=printed[1], **more)
    assert done.returncode == 0, done.stderr


def test_a_host_joins_with_the_token_only(
    hosts: tuple[Host, Host], printed: "re.Match[str]"
) -> None:
    refused = hosts[1].run(*printed[2].split())
    assert refused.returncode == 2
    assert "asks for a token" in refused.stderr, refused.stderr


def test_a_host_with_another_torch_is_named_and_nothing_runs(
    hosts: tuple[Host, Host], printed: "re.Match[str]", tmp_path: Path, tiny_folder: Path
) -> None:
    first, second = hosts
    other = tmp_path / "torch-1.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 1.0\n")
    join(second, printed, path=(tmp_path, ROOT))
    try:
        said = rf"\({second.address}\) has torch 1\.0, here it is {re.escape(version('torch'))}"
        (first.folder / "prompts.jsonl").write_text('{"id": "a", "prompt_ids": [4]}\n')
        words = ("decode", "--target", tiny_folder, "--prompts", "prompts.jsonl", "--out", "out")
        done = first.run(*words, "--set", "cluster.address=auto")
        assert done.returncode == 2
        assert re.search(said, done.stderr), done.stderr
        assert not (first.folder / "out").exists()
        shown = first.run("cluster", "status").stdout
        assert re.search(r" alive .* it has torch 1\.0, here it is ", shown), shown
    finally:
        second.run("cluster", "down")


def test_a_sweep_uses_the_targets_of_both_hosts(
    hosts: tuple[Host, Host], printed: "re.Match[str]", sweep_config: SweepConfig
) -> None:
    first, second = hosts
    join(second, printed)
    shown = second.run("cluster", "status").stdout
    assert "2 of 3 nodes alive; 0 of 4 CPUs in use, 0 of 2 GPUs in use" in shown, shown
    assert len(re.findall(r" alive .* same", shown)) == 2, shown
    values = sweep_config.model_dump(mode="json")
    values["space"] |= {"temperature": [0.0], "methods": ["chain"]}
    values["live"] |= {"trials": 6, "repeats": 2}
    values["replay"] |= {"trials": 10}
    values |= {"pool": {"gpus_per_rank": 1}, "cluster": {"address": "auto"}}
    (first.folder / "sweep.yaml").write_text(yaml.safe_dump(values))
    done = first.run("sweep", "--config", "sweep.yaml", "--name", "both")
    assert done.returncode == 0, done.stderr
    rows = live_rows(first.folder / "runs" / "both")
    assert {row["status"] for row in rows} <= {"done", "stopped"}
    assert len({row["node"] for row in rows}) == 2, done.stderr
    for host in (second, first):
        assert host.run("cluster", "down").returncode == 0
