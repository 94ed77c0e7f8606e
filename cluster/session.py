"""A session with a Ray cluster: an own one on this machine, or one that already runs."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import ray
from pydantic import BaseModel, ConfigDict, Field


class ClusterConfig(BaseModel):
    """Where to run (``cluster.*`` of a configuration)."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    address: str = "local"
    """``local``: a cluster of one's own that ends with the session; else a running head's."""
    num_cpus: int | None = Field(default=None, ge=1)
    """Cores that an own cluster offers; by default those of the machine."""
    num_gpus: int | None = Field(default=None, ge=0)
    """GPUs that an own cluster offers; by default those of the machine."""
    object_store_bytes: int = Field(default=200_000_000, ge=80_000_000)
    """Shared memory of an own cluster; little passes through it."""
    dashboard: bool = False
    """Whether an own cluster serves Ray's dashboard."""


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
    answers at ``config.address``.
    """
    joined = ray.is_initialized()
    if not joined:
        connect(config)
    try:
        yield resources()
    finally:
        if not joined:
            ray.shutdown()


def connect(config: ClusterConfig) -> None:
    """Open this process's connection to the cluster."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # A busy machine takes longer than Serve's 5 seconds to import what its proxy needs.
    os.environ.setdefault("RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", "30")
    # Ray's workers would give way to every other process; ranks decode as if in this one.
    os.environ.setdefault("RAY_worker_niceness", "0")
    if config.address == "local":
        ray.init(
            address="local",
            num_cpus=config.num_cpus,
            num_gpus=config.num_gpus,
            object_store_memory=config.object_store_bytes,
            include_dashboard=config.dashboard,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
        return
    try:
        ray.init(address=config.address, log_to_driver=False, logging_level=logging.ERROR)
    except ConnectionError as error:
        raise ValueError(
            f"cluster.address {config.address!r}: no Ray head answers there; valid: local, auto, "
            f"or host:port of a running one ({error})"
        ) from error


def resources() -> Resources:
    """The connected cluster's resources, whether taken or free."""
    total = ray.cluster_resources()
    return Resources(
        nodes=sum(node["Alive"] for node in ray.nodes()),
        cpus=total.get("CPU", 0.0),
        gpus=total.get("GPU", 0.0),
        memory_bytes=int(total.get("memory", 0)),
    )
