"""The Ray Serve application: one deployment, whose replicas own a target each."""

import asyncio
import logging
from hashlib import blake2b
from pathlib import Path
from typing import Any

import ray
from fastapi import FastAPI
from ray import serve
from ray.serve import Application

from actors.loading import absolute_paths, check_ranks_fit, check_target
from actors.placing import group_room
from cluster.configuration import validate
from decoders.options import DRAFT_FREE, ORACLES, PROPOSERS
from decoders.proposers.registry import check_drafters
from decoders.refusals import check_options
from models.checkpoint import find_checkpoint, target_spec
from models.text import TextCodec, open_codec
from serve.api import build_api
from serve.backends import is_local, open_backend
from serve.config import ServeConfig
from serve.keys import known_lines
from serve.moves import ServedSettings
from serve.service import Service, trace_store

SPARE_REQUESTS = 64
"""Requests that a replica takes beyond its answers: health, models, and those it must refuse."""
DRAIN_LOOK_SECONDS = 0.2
"""Between two looks of an ending replica at what it still does."""


def check_config(config: ServeConfig) -> None:
    """Raise ``ValueError``, before anything starts, for a target or a drafter that cannot be
    served: not there, of the wrong size, or without a tokenizer; and for options that the target
    cannot be decoded with."""
    check_target(config.target)
    if not on_gpu(config):
        check_ranks_fit(config.target)
    named = [("decode.method", config.decode.method), *(("methods", m) for m in config.methods)]
    for key, method in named:
        if method in ORACLES:
            served = ", ".join((*DRAFT_FREE, *PROPOSERS, "sets", "simsd"))
            raise ValueError(f"{key} {method}: oracles read the future; valid here: {served}")
    folder, spec = find_checkpoint(config.target.path), target_spec(config.target)
    check_drafters(folder, spec, config.drafter, config.all_methods)
    check_options(config.decode, spec)
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
        self.serves = False
        """Whether it has been told what to serve."""
        await self.service.warm_up()

    def __serve_build_asgi_app__(self) -> FastAPI:
        return build_api(self.service)

    def check_health(self) -> None:
        """Raise when this replica must be replaced (Ray Serve asks)."""
        self.service.backend.check()

    def reconfigure(self, settings: dict[str, Any]) -> None:
        """Take over other settings in place (Ray Serve calls it with ``user_config``). Wrong ones
        are refused, and what is served stays: for an error here Serve ends every replica. A replica
        that serves nothing yet raises ``ValueError``."""
        try:
            self.service.apply(validate(ServedSettings, settings))
        except ValueError as error:
            if not self.serves:
                raise
            self.service.refused = str(error)
            logging.getLogger("ray.serve").error("user_config is not taken over: %s", error)
        self.serves = True


def serve_application(config: ServeConfig, settings: ServedSettings | None = None) -> Application:
    """The application to hand to ``serve.run``. Handing over the one of the same ``config`` again
    with other ``settings`` changes every replica in place."""
    config = for_other_processes(config)
    settings = settings or ServedSettings.of(config)
    deployment = serve.deployment(
        name=Endpoint.__name__,
        user_config=settings.values(),
        max_ongoing_requests=config.max_answers + SPARE_REQUESTS,
        graceful_shutdown_wait_loop_s=DRAIN_LOOK_SECONDS,
        graceful_shutdown_timeout_s=config.serve.drain_seconds,
        **_resources(config),
        **_copies(config),
    )
    endpoint = deployment(serve.ingress()(Endpoint))
    # Ray Serve has no other way to say that the code is the same, and that replicas may stay.
    endpoint._version = blake2b(config.model_dump_json().encode(), digest_size=8).hexdigest()
    return endpoint.bind(config)


def build_application(args: dict[str, Any]) -> Application:
    """What ``serve deploy`` imports (``serve.app:build_application``): the configuration's keys as
    arguments, as ``maskahead serve --write-config`` writes them."""
    config = validate(ServeConfig, args)
    check_config(config)
    operation = config.serve
    if not (known_lines(operation) or operation.allow_no_keys or operation.loopback_only):
        raise ValueError("no API key is set; valid: serve.api_keys_file, serve.allow_no_keys=true")
    return serve_application(config)


def for_other_processes(config: ServeConfig) -> ServeConfig:
    """The same configuration wherever its replicas run: absolute paths, the keys themselves."""
    target, drafter = absolute_paths(config.target, config.drafter)
    log_file = config.serve.log_file
    operation = config.serve.model_copy(
        update={
            "api_key_hashes": known_lines(config.serve),
            "api_keys_file": None,
            "log_file": Path(log_file).resolve() if log_file else None,
            "trace_uri": trace_store(config),
        }
    )
    named = {"target": target, "drafter": drafter, "name": config.model_name}
    return config.model_copy(update=named | {"serve": operation})


def _copies(config: ServeConfig) -> dict[str, Any]:
    """How many replicas, or between which numbers they scale."""
    operation = config.serve
    if operation.max_replicas is None:
        return {"num_replicas": operation.replicas}
    scaling = {
        "min_replicas": operation.replicas,
        "max_replicas": operation.max_replicas,
        "target_ongoing_requests": operation.requests_per_replica or config.max_batch,
    }
    return {"autoscaling_config": scaling}


def _resources(config: ServeConfig) -> dict[str, Any]:
    """What a replica occupies: itself, or a place with all ranks of its group, on one node. It runs
    the code that the session has sent to the cluster (Serve hands on working folders only)."""
    sent = ray.get_runtime_context().runtime_env.get("py_modules") if ray.is_initialized() else None
    code = {"runtime_env": {"py_modules": sent}} if sent else {}
    if is_local(config):
        own = {"num_cpus": 0, "num_gpus": 1} if on_gpu(config) else {"num_cpus": 1}
        return {"ray_actor_options": own | code}
    return {
        "ray_actor_options": {"num_cpus": 0, **code},
        "placement_group_bundles": group_room(config.target),
        "placement_group_strategy": "STRICT_PACK",
    }


def on_gpu(config: ServeConfig) -> bool:
    return config.target.device.startswith("cuda")
