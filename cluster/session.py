"""A session with a Ray cluster: an own one on this machine, or one that already runs."""

import logging
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray

from cluster.attaching import check_head, find_head, shipped_code, use_token
from cluster.config import AUTO, LOCAL, RAY_ENVIRONMENT, ClusterConfig
from cluster.environment import check_nodes

__all__ = ["ClusterConfig", "Resources", "connected", "session"]


@dataclass(frozen=True)
class Resources:
    """What a cluster offers in all."""

    nodes: int
    cpus: float
    gpus: float
    memory_bytes: int

    def __str__(self) -> str:
        nodes = "1 node" if self.nodes == 1 else f"{self.nodes} nodes"
        gigabytes = self.memory_bytes / 1e9
        return f"{nodes}, {self.cpus:g} CPUs, {self.gpus:g} GPUs, {gigabytes:.1f} GB for Ray"


@contextmanager
def session(config: ClusterConfig) -> Iterator[Resources]:
    """Connect, and let go at the end: an own cluster ends, a running one goes on.

    Within an open session it joins that one and leaves it open. Raises ``ValueError`` when nothing
    answers at ``config.address``, or when a running cluster's nodes differ from this process.
    """
    with connected(config) as is_new:
        if is_new and config.address != LOCAL:
            check_nodes({node["NodeID"]: host_of(node) for node in ray.nodes()})
        yield resources()


@contextmanager
def connected(config: ClusterConfig) -> Iterator[bool]:
    """The same without a look at the nodes; yields whether this opened the connection."""
    is_new = not ray.is_initialized()
    if is_new:
        with own_end():
            connect(config)
    try:
        yield is_new
    finally:
        if is_new:
            ray.shutdown()


@contextmanager
def own_end() -> Iterator[None]:
    """SIGTERM does behind the block what it did before, and interrupts it. Ray, as it connects,
    sets a handler of its own that leaves with an error's exit code, and so with a failed run."""
    if threading.current_thread() is not threading.main_thread():
        yield  # nor does Ray set one there
        return
    told = signal.getsignal(signal.SIGTERM)
    try:
        yield
    except SystemExit as error:
        raise KeyboardInterrupt from error
    finally:
        signal.signal(signal.SIGTERM, told)


def connect(config: ClusterConfig) -> None:
    """Open this process's connection to the cluster."""
    for name, value in RAY_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if config.address != LOCAL:
        attach(config)
        return
    ray.init(
        address=LOCAL,
        num_cpus=config.num_cpus,
        num_gpus=config.num_gpus,
        object_store_memory=config.object_store_bytes,
        include_dashboard=config.dashboard,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )


def attach(config: ClusterConfig) -> None:
    """Join a cluster that runs."""
    address = find_head(config.address)
    use_token()
    standing = " auto, which stands for" if config.address == AUTO else ""
    check_head(address, f"cluster.address{standing}")
    shipped = shipped_code() if config.ship_code else None
    try:
        ray.init(
            address=address,
            runtime_env=shipped,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except ConnectionError as error:
        raise ValueError(
            f"cluster.address {config.address!r}: no Ray head answers there; valid: local, auto, "
            f"or host:port of a running one ({error})"
        ) from error
    except RuntimeError as error:  # Ray's own look at versions comes first
        raise ValueError(f"cluster.address {config.address!r}: {error}") from error


def host_of(node: Mapping[str, Any]) -> str:
    """How a node is called: its host, and its address where that says more."""
    host, address = node["NodeManagerHostname"], node["NodeManagerAddress"]
    return f"{host} ({address})"


def resources() -> Resources:
    """The connected cluster's resources, whether taken or free."""
    total = ray.cluster_resources()
    return Resources(
        nodes=sum(node["Alive"] for node in ray.nodes()),
        cpus=total.get("CPU", 0.0),
        gpus=total.get("GPU", 0.0),
        memory_bytes=int(total.get("memory", 0)),
    )
