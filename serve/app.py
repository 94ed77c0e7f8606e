"""The Ray Serve application: one deployment, whose replica owns a target."""

import asyncio
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import ray
from fastapi import FastAPI
from ray import serve
from ray.serve import Application
from ray.serve.config import HTTPOptions

from actors.loading import absolute_paths, check_ranks_fit, check_target
from actors.target_group import fetch
from cluster.session import ClusterConfig, session
from decoders.options import DRAFT_FREE, ORACLES, PROPOSERS
from decoders.proposers.registry import check_drafters
from models.checkpoint import find_checkpoint, target_spec
from models.text import TextCodec, open_codec
from serve.api import build_api
from serve.backends import is_local, open_backend
from serve.config import ServeConfig
from serve.service import Service

APPLICATION = "maskahead"
SPARE_REQUESTS = 64
"""Requests that a replica takes beyond its answers: health, models, and those it must refuse."""


def check_config(config: ServeConfig) -> None:
    """Raise ``ValueError``, before anything starts, for a target or a drafter that cannot be
    served: not there, of the wrong size, or without a tokenizer."""
    check_target(config.target)
    if not _on_gpu(config):
        check_ranks_fit(config.target)
    named = [("decode.method", config.decode.method), *(("methods", m) for m in config.methods)]
    for key, method in named:
        if method in ORACLES:
            served = ", ".join((*DRAFT_FREE, *PROPOSERS, "sets", "simsd"))
            raise ValueError(f"{key} {method}: oracles read the future; valid here: {served}")
    folder = find_checkpoint(config.target.path)
    check_drafters(folder, target_spec(config.target), config.drafter, config.all_methods)
    if open_codec(folder) is None:
        raise ValueError(f"target.path {config.target.path!r} has no tokenizer; serving needs one")


def open_service(config: ServeConfig) -> Service:
    """A service on the target of ``config``, loaded by this process."""
    folder = find_checkpoint(config.target.path)
    return Service(config, target_spec(config.target), TextCodec(folder), open_backend(config))


class Endpoint:
    """One replica of the endpoint."""

    async def __init__(self, config: ServeConfig) -> None:
        self.service = await asyncio.to_thread(open_service, config)

    def __serve_build_asgi_app__(self) -> FastAPI:
        return build_api(self.service)

    def check_health(self) -> None:
        """Raise when this replica must be replaced (Ray Serve asks)."""
        self.service.backend.check()


def serve_application(config: ServeConfig) -> Application:
    """The application to hand to ``serve.run``."""
    target, drafter = absolute_paths(config.target, config.drafter)
    config = config.model_copy(
        update={"target": target, "drafter": drafter, "name": config.model_name}
    )
    deployment = serve.deployment(
        name=Endpoint.__name__,
        ray_actor_options=_resources(config),
        max_ongoing_requests=config.max_answers + SPARE_REQUESTS,
    )
    return deployment(serve.ingress()(Endpoint)).bind(config)


def _resources(config: ServeConfig) -> dict[str, float]:
    """What a replica itself occupies: the ranks of a group have places of their own."""
    if not is_local(config):
        return {"num_cpus": 0}
    return {"num_cpus": 0, "num_gpus": 1} if _on_gpu(config) else {"num_cpus": 1}


def _on_gpu(config: ServeConfig) -> bool:
    return config.target.device.startswith("cuda")


def run_server(config: ServeConfig, host: str = "127.0.0.1", port: int = 8000) -> None:
    """Serve ``config`` until interrupted, on a local Ray unless one is connected.

    Raises ``ValueError`` for what cannot be served.
    """
    check_config(config)
    print(f"starting Ray and loading {config.model_name} ...", flush=True)
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    with session(ClusterConfig()), serving(config, host, port) as url:
        print(f"{config.model_name} answers on {url} (Ctrl-C ends it)", flush=True)
        threading.Event().wait()


@contextmanager
def serving(config: ServeConfig, host: str, port: int) -> Iterator[str]:
    """The running endpoint's URL, within an open Ray session.

    Raises ``ValueError`` for a port that is taken, or GPUs that the cluster lacks or that have no
    room, and ``RuntimeError`` with what the replica said when it does not come up.
    """
    _check_devices(config)
    _check_port(host, port)
    serve.start(http_options=HTTPOptions(host=host, port=port))
    try:
        try:
            serve.run(serve_application(config), name=APPLICATION, route_prefix="/")
        except RuntimeError as error:
            raise RuntimeError(why_not_deployed() or str(error)) from error
        yield f"http://{host}:{port}/v1"
    finally:
        serve.shutdown()


def _check_devices(config: ServeConfig) -> None:
    """A replica that asks for more than there is would stay pending for ever."""
    num_gpus = ray.cluster_resources().get("GPU", 0)
    if _on_gpu(config) and num_gpus < config.target.tp:
        raise ValueError(
            f"target.device {config.target.device!r} with target.tp {config.target.tp}: this "
            f"cluster has {num_gpus:g} GPUs"
        )
    if _on_gpu(config):
        # In a process of its own: looking at a GPU takes memory there for as long as it lives.
        check = ray.remote(num_cpus=0, num_gpus=1)(check_ranks_fit)
        fetch(check.remote(config.target))


def why_not_deployed() -> str:
    """The last line that a replica which failed to start left behind."""
    application = serve.status().applications.get(APPLICATION)
    deployments = application.deployments.values() if application else ()
    lines = [line for found in deployments for line in found.message.splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


def _check_port(host: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ValueError(f"port {port} on {host}: {error.strerror}") from error
