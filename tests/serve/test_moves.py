"""What a running endpoint takes over in place, and that the rest is told to need a redeploy."""

import asyncio
import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from decoders.options import DecodeOptions
from models.checkpoint import target_spec
from serve.api import model_card
from serve.app import Endpoint, open_service
from serve.config import ServeConfig
from serve.moves import ServedSettings, check_in_place
from serve.operation import OperationConfig
from serve.running import Follower
from serve.schema import CompletionRequest
from serve.service import Service
from tests.serve.conftest import MODEL

BODY = {"model": MODEL, "prompt": "hello", "maskahead": {"ignore_stop": True}}


@pytest.fixture
def service(serve_config: ServeConfig) -> Iterator[Service]:
    opened = open_service(serve_config)
    yield opened
    opened.backend.close()


def changed(config: ServeConfig, **decode: Any) -> ServeConfig:
    options = {"method": "chain", "max_new_tokens": 24} | decode
    return config.model_copy(update={"decode": DecodeOptions.model_validate(options)})


def test_settings_survive_their_way_as_plain_values(serve_config: ServeConfig) -> None:
    for method in ("standard", "threshold", "chain", "order", "sets", "simsd"):
        settings = ServedSettings.of(changed(serve_config, method=method))
        assert ServedSettings.model_validate(settings.values()) == settings


def test_other_options_serve_the_next_request_and_leave_the_running_one(
    http: httpx.AsyncClient, service: Service
) -> None:
    async def run() -> tuple[str, str, dict[str, Any]]:
        job = service.completion_job(CompletionRequest.model_validate(BODY))
        running = service.run(job)
        await anext(running)
        service.apply(ServedSettings.of(changed(service.config, method="wtree", budget=3)))
        used = {delta.result.request.options.method async for _, delta in running if delta.result}
        after = (await http.post("/v1/completions", json=BODY)).json()
        card = (await http.get(f"/v1/models/{MODEL}")).json()
        return used.pop(), after["usage"]["maskahead"]["method"], card["maskahead"]["decode"]

    before, after, card = asyncio.run(run())
    assert (before, after) == ("chain", "wtree")
    assert (card["method"], card["budget"]) == ("wtree", 3)
    assert b'method="wtree"' in service.metrics.page(None)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"method": "chian"}, r"decode\.method: 'chian' must be 'standard', "),
        ({"method": "chain", "gama": 0.1}, r"decode\.gama: unknown key; valid: .*gamma"),
        ({"method": "sets"}, r"decode\.method sets: its drafter is not loaded here"),
    ],
)
def test_a_replica_that_serves_stays_with_it_where_user_config_is_wrong(
    serve_config: ServeConfig, service: Service, wrong: dict[str, Any], told: str
) -> None:
    replica = object.__new__(Endpoint)  # its __init__ would open another target
    replica.service, replica.serves = service, False
    with pytest.raises(ValueError, match=told):
        replica.reconfigure({"decode": wrong})
    good = ServedSettings.of(changed(serve_config, budget=3))
    replica.reconfigure(good.values())
    replica.reconfigure({"decode": wrong})
    card = model_card(service)["maskahead"]
    assert card["decode"]["budget"] == 3
    assert re.match(told, card["refused"])
    replica.reconfigure(good.values())
    assert model_card(service)["maskahead"]["refused"] is None


def test_a_draining_endpoint_finishes_what_runs_and_refuses_the_rest(
    http: httpx.AsyncClient, service: Service
) -> None:
    async def run() -> tuple[list[int], httpx.Response, httpx.Response, httpx.Response]:
        job = service.completion_job(CompletionRequest.model_validate(BODY))
        running = service.run(job)
        await anext(running)
        service.apply(ServedSettings.of(service.config, draining=True))
        refused = await http.post("/v1/completions", json=BODY)
        ready, health = await http.get("/readyz"), await http.get("/healthz")
        tokens = [delta async for _, delta in running][-1].result
        assert tokens is not None
        return [len(tokens.token_ids)], refused, ready, health

    tokens, refused, ready, health = asyncio.run(run())
    assert tokens == [24]
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
    assert "Retry-After" in refused.headers
    assert (ready.status_code, health.status_code) == (503, 200)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_batch": 1}, "max_batch 4 is now 1.*redeploy"),
        ({"name": "other"}, "name .*redeploy"),
        ({"decode": DecodeOptions(method="order")}, "decode.method order.*chain, standard"),
        ({"decode": DecodeOptions(cache_refresh=2)}, "decode.cache_refresh 2: .*valid: 0"),
        (
            {"serve": OperationConfig(max_budget=9)},
            r"serve\.max_budget 64 is now 9, which needs a redeploy",
        ),
    ],
)
def test_what_cannot_be_taken_over_is_named(
    serve_config: ServeConfig, change: dict[str, Any], message: str
) -> None:
    wanted, spec = serve_config.model_copy(update=change), target_spec(serve_config.target)
    with pytest.raises(ValueError, match=message):
        check_in_place(serve_config, wanted, spec)


def test_a_follower_takes_each_move_once_and_tells_each_trouble_once(
    serve_config: ServeConfig,
) -> None:
    faster = changed(serve_config, budget=6)
    larger = serve_config.model_copy(update={"max_batch": 9})

    def failing() -> ServeConfig:
        raise ValueError("config best.yaml is not YAML")

    looks: list[Callable[[], ServeConfig]] = [
        lambda: serve_config,
        lambda: faster,
        lambda: faster,
        failing,
        failing,
        lambda: larger,
        lambda: serve_config,
        failing,
    ]
    said: list[str] = []
    turns = iter(looks)
    spec = target_spec(serve_config.target)
    follower = Follower(serve_config, spec, lambda: next(turns)(), said.append)
    taken = [follower.next() for _ in looks]
    assert taken == [None, faster, None, None, None, None, serve_config, None]
    assert [text.split(":")[0] for text in said] == ["not taken over"] * 3
    assert "not YAML" in said[0]
    assert "max_batch 4 is now 9" in said[1]
