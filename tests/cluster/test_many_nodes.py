"""A session with four nodes, one of which is lost; they are Ray's own simulation."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FOUR_NODES = """
import os
os.environ["RAY_AUTH_MODE"] = "disabled"  # Ray's simulation starts its nodes without a token
os.environ["RAY_health_check_period_ms"] = "500"
os.environ["RAY_health_check_failure_threshold"] = "2"
import time
import ray
from ray.cluster_utils import Cluster
from cluster.config import ClusterConfig
from cluster.session import session
from cluster.status import cluster_status

node = {"object_store_memory": 80_000_000, "num_cpus": 1, "num_gpus": 2}
simulated = Cluster(initialize_head=True, head_node_args=node)
nodes = [simulated.add_node(**node, wait=False) for _ in range(3)]
simulated.wait_for_nodes()
with session(ClusterConfig(address=simulated.address)) as resources:
    print(resources.nodes, resources.cpus, resources.gpus)
    rows, told = cluster_status(simulated.address)
    print(told, {row["check"] for row in rows}, sum(row["role"] == "head" for row in rows))
    simulated.remove_node(nodes[0], allow_graceful=False)
    ended = time.monotonic() + 60
    while sum(node["Alive"] for node in ray.nodes()) == 4 and time.monotonic() < ended:
        time.sleep(0.2)
    rows, told = cluster_status(simulated.address)
    print(told, sorted(row["state"] for row in rows))
simulated.shutdown()
"""


@pytest.mark.ray
@pytest.mark.slow
def test_four_nodes_are_seen_compared_and_one_of_them_lost(tmp_path: Path) -> None:
    ours = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-c", FOUR_NODES],
        cwd=tmp_path,
        env=ours | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stdout.splitlines() if "node" in line or line[0].isdigit()]
    assert told == [
        "4 4.0 8.0",
        "4 of 4 nodes alive; 0 of 4 CPUs in use, 0 of 8 GPUs in use {'same'} 1",
        "3 of 4 nodes alive; 0 of 3 CPUs in use, 0 of 6 GPUs in use "
        "['alive', 'alive', 'alive', 'lost']",
    ]
