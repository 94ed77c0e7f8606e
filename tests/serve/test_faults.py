"""Whatever is lost in the middle of an answer, its client is told, nothing hangs, and the endpoint
is in order afterwards."""

import asyncio
import json
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import httpx
import pytest

from cluster.session import Resources
from decoders.options import DecodeOptions
from drafters.config import DrafterConfig
from models.config import TargetConfig
from serve.api import build_api
from serve.app import open_service
from serve.config import ServeConfig
from serve.running import serving
from tests.serve.conftest import MODEL
from tests.serve.own_processes import kill_own

pytestmark = pytest.mark.ray

BODY = {"model": MODEL, "prompt": "hello", "maskahead": {"ignore_stop": True}}
LONG = BODY | {"max_tokens": 450, "stream": True}


@pytest.fixture(scope="module")
def base(ray_cluster: Resources, serve_config: ServeConfig) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with serving(serve_config, "127.0.0.1", port) as url:
        yield url.removesuffix("/v1")


async def answers_again(http: httpx.AsyncClient) -> None:
    """Wait until a plain request is answered; until then it is refused, never left alone."""
    for _ in range(600):
        try:
            response = await http.post("/v1/completions", json=BODY)
        except httpx.TransportError:
            response = None
        if response is not None and response.status_code == 200:
            assert response.json()["usage"]["completion_tokens"] == 24
            ready = (await http.get("/readyz")).json()
            assert (ready["running"], ready["waiting"]) == (0, 0)
            return
        await asyncio.sleep(0.1)
    raise AssertionError("the endpoint does not come back")


async def cut_off(http: httpx.AsyncClient, kill: Callable[[], None]) -> list[str]:
    """The events of a long stream during which ``kill`` is called; a broken connection ends it."""
    events: list[str] = []
    try:
        async with http.stream("POST", "/v1/completions", json=LONG) as response:
            assert response.status_code == 200
            async for line in response.aiter_lines():
                if not line:
                    continue
                events.append(line.removeprefix("data: "))
                if len(events) == 1:
                    await asyncio.to_thread(kill)
    except httpx.TransportError as error:
        events.append(type(error).__name__)
    return events


@pytest.mark.parametrize("actor", ["ServeReplica:maskahead", "ProxyActor"])
def test_a_lost_replica_or_proxy_ends_the_stream_and_is_replaced(base: str, actor: str) -> None:
    async def run() -> list[str]:
        async with httpx.AsyncClient(base_url=base, timeout=30) as http:
            events = await cut_off(http, lambda: kill_own(actor))
            await answers_again(http)
            return events

    events = asyncio.run(asyncio.wait_for(run(), 120))
    assert events[-1] != "[DONE]", "a stream that was cut off does not look complete"


@pytest.mark.parametrize("lost", ["TargetRank", "DrafterActor"])
def test_a_lost_rank_or_drafter_is_told_and_rebuilt(
    ray_cluster: Resources, serve_config: ServeConfig, lost: str
) -> None:
    path = serve_config.target.path
    changes: dict[str, Any] = {
        "TargetRank": {"target": TargetConfig(path=path, dtype="float64", tp=2)},
        "DrafterActor": {
            "drafter": DrafterConfig(placement="actor"),
            "decode": DecodeOptions(method="order", budget=4, max_new_tokens=24),
        },
    }
    service = open_service(serve_config.model_copy(update=changes[lost]))

    async def run() -> list[str]:
        transport = httpx.ASGITransport(build_api(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            job = http.post("/v1/completions", json=LONG)
            task = asyncio.create_task(job)
            while service.num_answers == 0 or not (await service.backend.stats()).running:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(kill_own, lost)
            response = await task
            await answers_again(http)
            return [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]

    try:
        events = asyncio.run(asyncio.wait_for(run(), 120))
    finally:
        service.backend.close()
    *_, told = [json.loads(event) for event in events if event != "[DONE]"]
    assert told["error"]["code"] == "unavailable"
    assert told["error"]["type"] == "server_error"
    assert service.num_answers == 0


def test_who_does_not_read_keeps_nobody_waiting(base: str) -> None:
    host, port = base.removeprefix("http://").split(":")
    body = json.dumps(LONG | {"n": 12, "max_tokens": 100}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    with socket.socket() as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        lazy.connect((host, int(port)))
        lazy.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        assert lazy.recv(16).startswith(b"HTTP/1.1 200")

        async def run() -> None:
            async with httpx.AsyncClient(base_url=base, timeout=30) as http:
                await answers_again(http)

        asyncio.run(asyncio.wait_for(run(), 60))


def test_64_clients_at_once_are_all_answered_or_refused(base: str) -> None:
    """Plain and streamed, right and wrong, patient and not: twelve answers fit at a time."""

    async def plain(http: httpx.AsyncClient) -> str:
        return str((await http.post("/v1/completions", json=BODY)).status_code)

    async def streamed(http: httpx.AsyncClient) -> str:
        response = await http.post("/v1/completions", json=BODY | {"stream": True})
        if response.status_code == 200:
            assert response.text.endswith("data: [DONE]\n\n")
        return str(response.status_code)

    async def wrong(http: httpx.AsyncClient) -> str:
        return str((await http.post("/v1/completions", content=b"{no")).status_code)

    async def leaving(http: httpx.AsyncClient) -> str:
        async with http.stream("POST", "/v1/completions", json=LONG) as response:
            if response.status_code == 200:
                await anext(response.aiter_lines())
        return "left"

    async def run() -> Counter[str]:
        limits = httpx.Limits(max_connections=64)
        async with httpx.AsyncClient(base_url=base, timeout=60, limits=limits) as http:
            kinds: list[Callable[[httpx.AsyncClient], Awaitable[str]]]
            kinds = [plain, streamed, wrong, leaving]
            found = Counter(await asyncio.gather(*(kinds[i % 4](http) for i in range(64))))
            await answers_again(http)
            return found

    found = asyncio.run(asyncio.wait_for(run(), 120))
    assert found.keys() <= {"200", "400", "503", "left"}
    assert found["400"] == found["left"] == 16
    assert found["200"] >= 8
