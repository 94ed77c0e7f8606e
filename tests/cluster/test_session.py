"""What a session with a cluster promises."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import ray
from pydantic import ValidationError

from cluster.session import ClusterConfig, Resources, attach, session
from tests.cluster.test_tracking_server import free_port

ROOT = Path(__file__).parents[2]

OWN_CLUSTER = """
import signal
import ray
from cluster.session import ClusterConfig, session

@ray.remote(num_cpus=0)
def import_packages():
    import actors, cluster, decoders, drafters, models, tasks
    return models.__file__

signal.signal(signal.SIGTERM, signal.default_int_handler)
with session(ClusterConfig(num_cpus=1, object_store_bytes=80_000_000)) as resources:
    assert ray.is_initialized() and resources.nodes == 1 and resources.cpus == 1
    assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler, "it is Ray's"
    print(ray.get(import_packages.remote()))
assert not ray.is_initialized()
"""


@pytest.mark.ray
def test_an_own_cluster_ends_with_its_session_and_its_workers_find_the_packages() -> None:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    found = subprocess.run(
        [sys.executable, "-c", OWN_CLUSTER],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip() == str(ROOT / "models" / "__init__.py")


@pytest.mark.ray
def test_a_session_within_a_session_joins_it_and_leaves_it_open(ray_cluster: Resources) -> None:
    with session(ClusterConfig()) as joined:
        assert joined == ray_cluster
    assert ray.is_initialized()


@pytest.mark.ray
def test_resources_are_told_in_a_line(ray_cluster: Resources) -> None:
    assert ray_cluster.nodes == 1
    assert ray_cluster.cpus == 4
    assert str(ray_cluster).startswith("1 node, 4 CPUs, 0 GPUs, ")


def test_a_head_that_ray_remembers_but_that_has_ended_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)  # a folder without a cluster of its own
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{free_port()}")
    with pytest.raises(
        ValueError, match=r"cluster.address auto, which stands for .*no Ray head answers there"
    ):
        attach(ClusterConfig(address="auto"))


def test_unknown_keys_are_refused() -> None:
    with pytest.raises(ValidationError, match="Extra inputs"):
        ClusterConfig.model_validate({"adress": "local"})
