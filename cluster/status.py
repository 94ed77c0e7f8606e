"""``maskahead cluster status``: who is there, what they offer and run, and where they differ."""

from collections.abc import Mapping
from typing import Any

import ray

from cluster.config import LOCAL, ClusterConfig
from cluster.environment import COMPARED, differences, facts, look_at_nodes
from cluster.session import connected, host_of

Row = dict[str, Any]


def cluster_status(address: str) -> tuple[list[Row], str]:
    """A row for every node, lost ones too, and a line that sums up.

    Raises ``ValueError`` for what is no address, or where no head answers.
    """
    if address == LOCAL:  # a cluster of this command's own, which nobody asked to see
        raise ValueError("--address local: valid: auto, or HOST:PORT of a running head")
    with connected(ClusterConfig(address=address, ship_code=False)):
        nodes, there = ray.nodes(), look_at_nodes()
        rows = [row_of(node, there.get(node["NodeID"], {})) for node in nodes]
        return rows, summary(rows, ray.cluster_resources(), ray.available_resources())


def row_of(node: Mapping[str, Any], there: Mapping[str, str]) -> Row:
    """One node: where, alive or not, what it offers, what it runs, what differs from here."""
    resources = node["Resources"]
    differing = differences(facts(), {node["NodeID"]: there}, {node["NodeID"]: "it"})
    return {
        "node": node["NodeID"][:8],
        "host": host_of(node),
        "role": "head" if "node:__internal_head__" in resources else "node",
        "state": "alive" if node["Alive"] else "lost",
        "CPUs": resources.get("CPU", 0.0),
        "GPUs": resources.get("GPU", 0.0),
        "memory GB": resources.get("memory", 0.0) / 1e9,
        **{part: there.get(part) for part in COMPARED},
        "check": "; ".join(differing) if differing else "same" if node["Alive"] else None,
    }


def summary(rows: list[Row], total: Mapping[str, float], free: Mapping[str, float]) -> str:
    """How many nodes are alive, and how much of their processors is taken."""
    alive = sum(row["state"] == "alive" for row in rows)
    taken = ", ".join(
        f"{total.get(kind, 0) - free.get(kind, 0):g} of {total.get(kind, 0):g} {kind}s in use"
        for kind in ("CPU", "GPU")
    )
    return f"{alive} of {len(rows)} nodes alive; {taken}"
