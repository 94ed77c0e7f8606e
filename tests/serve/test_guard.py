"""Keys, sizes, paces and times; and the one line that is left of a request."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from time import sleep
from typing import Any

import httpx
import pytest

from serve.api import build_api
from serve.backends import LocalBackend
from serve.keys import fresh_key, key_line
from serve.service import Service
from tests.serve.conftest import MODEL

BODY = {"model": MODEL, "prompt": "hello there", "maskahead": {"ignore_stop": True}}
KEY = fresh_key()

Opened = Callable[..., httpx.AsyncClient]


@pytest.fixture
def opened(service: Service, monkeypatch: pytest.MonkeyPatch) -> Opened:
    """A client of the service under other settings of ``serve``."""

    def open_with(**settings: Any) -> httpx.AsyncClient:
        operation = service.config.serve.model_copy(update=settings)
        config = service.config.model_copy(update={"serve": operation})
        monkeypatch.setattr(service, "config", config)
        transport = httpx.ASGITransport(build_api(service))
        return httpx.AsyncClient(transport=transport, base_url="http://localhost")

    return open_with


@pytest.fixture
def lines(tmp_path: Path) -> Callable[[], list[dict[str, Any]]]:
    """What was written to the log file."""
    file = tmp_path / "requests.jsonl"
    return lambda: [json.loads(line) for line in file.read_text().splitlines()]


def shown(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8000", 200),
        ("127.0.0.1", 200),
        ("LOCALHOST.:8000", 200),
        ("[::1]:8000", 200),
        ("", 200),
        ("evil.example:8000", 403),
        ("localhost.evil.example", 403),
        ("[::1", 403),
    ],
)
def test_without_keys_only_requests_that_name_this_machine_are_answered(
    opened: Opened, host: str, status: int
) -> None:
    async def run(http: httpx.AsyncClient) -> int:
        return (await http.get("/v1/models", headers={"Host": host})).status_code

    assert asyncio.run(run(opened())) == status
    assert asyncio.run(run(opened(allow_no_keys=True))) == 200


def test_with_keys_only_their_owners_are_answered(opened: Opened) -> None:
    http = opened(api_key_hashes=(key_line("ann", KEY),))

    async def run() -> list[int]:
        paths = ("/v1/models", "/metrics", "/nowhere", "/healthz", "/readyz", "/")
        without = [(await http.get(path)).status_code for path in paths]
        wrong = await http.post("/v1/completions", json=BODY, headers=shown("mh-wrong"))
        assert wrong.headers["www-authenticate"] == "Bearer"
        assert wrong.json()["error"]["code"] == "invalid_api_key"
        other = await http.get("/v1/models", headers={"Authorization": f"Basic {KEY}"})
        right = await http.post("/v1/completions", json=BODY, headers=shown(KEY))
        return [*without, wrong.status_code, other.status_code, right.status_code]

    assert asyncio.run(run()) == [401, 401, 401, 200, 200, 200, 401, 401, 200]


@pytest.mark.parametrize("known", [True, False])
def test_a_body_that_is_too_large_is_refused(opened: Opened, known: bool) -> None:
    """Also one that does not say its length."""
    http = opened(max_body_bytes=2000)
    text = json.dumps(BODY | {"prompt": "a" * 5000}).encode()

    async def parts() -> AsyncIterator[bytes]:
        for start in range(0, len(text), 500):
            yield text[start : start + 500]

    headers = {"Content-Type": "application/json"}
    content = text if known else parts()
    response = asyncio.run(http.post("/v1/completions", content=content, headers=headers))
    assert response.status_code == 413
    assert response.json()["error"]["code"] == "body_too_large"
    assert "serve.max_body_bytes" in response.json()["error"]["message"]


def test_a_body_that_does_not_arrive_is_not_waited_for(opened: Opened) -> None:
    http = opened(body_seconds=0.1)

    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(30)

    headers = {"Content-Type": "application/json"}
    response = asyncio.run(http.post("/v1/completions", content=slow(), headers=headers))
    assert response.status_code == 408
    assert "serve.body_seconds" in response.json()["error"]["message"]


def test_prompts_and_answers_are_bounded(opened: Opened) -> None:
    http = opened(max_prompt_tokens=20, max_answer_tokens=6)

    async def run() -> list[httpx.Response]:
        bodies = [BODY, BODY | {"max_tokens": 7}, BODY | {"prompt": "hello " * 30}]
        return [await http.post("/v1/completions", json=body) for body in bodies]

    right, much, long = asyncio.run(run())
    assert right.json()["usage"]["completion_tokens"] == 6
    for response, param in ((much, "max_tokens"), (long, "prompt")):
        error = response.json()["error"]
        assert (error["param"], error["code"]) == (param, "context_length_exceeded")


def test_drafts_are_bounded_but_for_those_that_are_served(opened: Opened) -> None:
    async def run(http: httpx.AsyncClient, budget: int | str) -> httpx.Response:
        own = {"method": "chain", "budget": budget, "ignore_stop": True}
        return await http.post("/v1/completions", json=BODY | {"maskahead": own})

    http = opened(max_budget=3)
    for budget in (3, "auto", 4):
        assert asyncio.run(run(http, budget)).status_code == 200
    refused = asyncio.run(run(http, 5))
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "maskahead.budget"


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_takes_too_long_ends(
    opened: Opened, service: Service, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    """A stream has begun by then: it ends with an error event."""
    assert isinstance(service.backend, LocalBackend)
    target = service.backend.batching.engine.target
    whole = target.forward
    monkeypatch.setattr(target, "forward", lambda batch: sleep(0.02) or whole(batch))
    http = opened(request_seconds=1.0)
    extra = {"method": "standard", "ignore_stop": True}
    body = BODY | {"max_tokens": 400, "stream": stream, "maskahead": extra}

    async def run() -> httpx.Response:
        response = await http.post("/v1/completions", json=body)
        while (await service.backend.stats()).running:
            await asyncio.sleep(0.005)
        return response

    response = asyncio.run(asyncio.wait_for(run(), 10))
    assert response.status_code == (200 if stream else 504)
    told = response.text.split("\n\n")[-3].removeprefix("data: ") if stream else response.text
    assert json.loads(told)["error"]["code"] == "timeout"
    assert service.num_answers == 0


def test_a_request_leaves_one_line_without_its_text(
    opened: Opened, lines: Callable[[], list[dict[str, Any]]], tmp_path: Path
) -> None:
    http = opened(api_key_hashes=(key_line("ann", KEY),), log_file=tmp_path / "requests.jsonl")

    async def run() -> list[httpx.Response]:
        named = shown(KEY) | {"X-Request-Id": "mine-1"}
        return [
            await http.post("/v1/completions", json=BODY, headers=named),
            await http.post("/v1/completions", json=BODY | {"n": 999}, headers=shown(KEY)),
            await http.get("/v1/models", headers={"X-Request-Id": "a\nb"}),
            await http.get("/healthz"),
            await http.get("/v1/a%C2%85b%E2%80%A8c", headers=shown(KEY)),
        ]

    answers = asyncio.run(run())
    done, bad, refused, odd = lines()
    assert done["request"] == answers[0].headers["x-request-id"] == "mine-1"
    assert (done["status"], done["key"], done["ending"]) == (200, "ann", "finished")
    assert done["nfe"] == answers[0].json()["usage"]["maskahead"]["nfe"]
    assert done["completion_tokens"] == 24
    assert 0 < done["first_text_seconds"] <= done["seconds"]
    assert bad["status"] == 400
    assert refused["status"] == 401
    assert refused["request"] == answers[2].headers["x-request-id"]
    assert "\n" not in refused["request"]
    assert odd["path"] == "/v1/a\x85b\u2028c", "told, and no end of a line"
    everything = (tmp_path / "requests.jsonl").read_text()
    assert "hello" not in everything
    assert KEY not in everything


def test_text_is_logged_when_it_is_asked_for(
    opened: Opened, lines: Callable[[], list[dict[str, Any]]], tmp_path: Path
) -> None:
    http = opened(log_text=True, log_file=tmp_path / "requests.jsonl")
    answer = asyncio.run(http.post("/v1/completions", json=BODY)).json()
    (line,) = lines()
    assert line["prompts"] == [BODY["prompt"]]
    assert line["texts"] == [answer["choices"][0]["text"]]


def test_lines_can_be_turned_off(opened: Opened, tmp_path: Path) -> None:
    http = opened(log_requests=False, log_file=tmp_path / "requests.jsonl")
    asyncio.run(http.post("/v1/completions", json=BODY))
    assert (tmp_path / "requests.jsonl").read_text() == ""


def test_a_failure_that_nobody_expected_is_told_and_logged_as_one(
    opened: Opened,
    service: Service,
    lines: Callable[[], list[dict[str, Any]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "completion_job", lambda body: {}["nothing"])
    http = opened(log_file=tmp_path / "requests.jsonl")
    response = asyncio.run(http.post("/v1/completions", json=BODY))
    assert (response.status_code, response.json()["error"]["code"]) == (500, "internal_error")
    assert lines()[0]["status"] == 500


@pytest.mark.parametrize("num_sent", [1, 3])
def test_a_client_that_leaves_amid_a_chunk_has_left_at_once(
    opened: Opened,
    service: Service,
    lines: Callable[[], list[dict[str, Any]]],
    tmp_path: Path,
    num_sent: int,
) -> None:
    """It reads no more, so that a chunk cannot be sent, and then it goes."""
    opened(log_file=tmp_path / "requests.jsonl")
    body = json.dumps(BODY | {"max_tokens": 400, "stream": True}).encode()

    async def run() -> None:
        left, parts, sent = asyncio.Event(), iter([body]), iter(range(1, num_sent))

        async def receive() -> dict[str, Any]:
            if (part := next(parts, None)) is not None:
                return {"type": "http.request", "body": part}
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if next(sent, None) is None:
                left.set()
                await asyncio.sleep(30)

        headers = [(b"content-type", b"application/json")]
        asked = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": headers}
        await build_api(service)(asked | {"query_string": b""}, receive, send)
        assert service.num_answers == 0

    asyncio.run(asyncio.wait_for(run(), 20))
    assert lines()[0]["ending"] == "cancelled"
