"""What every node of a cluster must have in common, and the settings that Ray is started with."""

import platform
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from actors.remote_calls import fetch

ROOT = Path(__file__).parents[1]
ROOMS = (
    *("models", "drafters", "decoders", "tasks", "actors", "cluster"),
    *("benchmarks", "tune", "serve"),
)
"""The folders of code."""
COMPARED = ("python", "ray", "torch", "code")
"""What must be the same everywhere; ``code`` is a digest of the program itself."""
NODE_SECONDS = 180.0
"""A cold node first gets the program and imports it, and may be busy."""

Facts = Mapping[str, Any]


def facts() -> dict[str, str]:
    """What this process runs on."""
    return {
        "python": platform.python_version(),
        "ray": ray.__version__,
        "torch": _version("torch"),
        "maskahead": _version("maskahead"),
        "code": code_digest(),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


@lru_cache
def code_digest() -> str:
    """A short digest of all of the program's source files."""
    state = blake2b(digest_size=4)
    for room in ROOMS:
        for file in sorted((ROOT / room).rglob("*.py")):
            state.update(str(file.relative_to(ROOT)).encode() + file.read_bytes())
    return state.hexdigest()


def look_at_nodes() -> dict[str, dict[str, str]]:
    """The facts of every node of the cluster, by its id, told by a process over there; ``error`` of
    one that does not answer though Ray calls it alive."""
    asked = {}
    for node in _alive():
        there = NodeAffinitySchedulingStrategy(node, soft=False)
        asked[node] = _remote_facts.options(scheduling_strategy=there).remote()
    ready, _ = ray.wait([*asked.values()], num_returns=len(asked), timeout=NODE_SECONDS)
    told = {node: _answer(ref, ref in ready) for node, ref in asked.items()}
    # Ray notices a lost node late, perhaps by this very question: it is no part of the cluster.
    still_there = _alive()
    return {node: facts for node, facts in told.items() if node in still_there}


def _alive() -> list[str]:
    return [node["NodeID"] for node in ray.nodes() if node["Alive"]]


def _answer(ref: Any, is_ready: bool) -> dict[str, str]:
    if not is_ready:
        return {"error": f"no answer within {NODE_SECONDS:g} s"}
    try:
        return fetch(ref)
    except Exception as error:  # a node that cannot load the program, say
        lines = [line for line in str(error).splitlines() if line.strip()]
        return {"error": f"{type(error).__name__}: {lines[-1].strip() if lines else ''}"}


_remote_facts: Any = ray.remote(num_cpus=0, max_retries=0)(facts)


def check_nodes(hosts: Mapping[str, str]) -> None:
    """Raise ``ValueError`` where a node of the connected cluster differs from this process;
    ``hosts`` names the nodes."""
    problems = differences(facts(), look_at_nodes(), hosts)
    if problems:
        raise ValueError(
            f"the cluster's nodes differ from this process: {'; '.join(problems)}; install the "
            "same versions everywhere (docs/cluster.md)"
        )


def differences(here: Facts, nodes: Mapping[str, Facts], hosts: Mapping[str, str]) -> Sequence[str]:
    """What differs from ``here`` on each of the ``nodes``, in words."""
    found = []
    for node, there in nodes.items():
        name = hosts.get(node, node[:8])
        if "error" in there:
            found.append(f"{name} does not answer ({there['error']})")
        found += [
            f"{name} has {part} {there[part]}, here it is {here[part]}"
            for part in COMPARED
            if part in there and there[part] != here[part]
        ]
    return found
