"""Everything that goes wrong is told in OpenAI's shape, with or without a stream."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest
from torch import Tensor

from models.target import CopyBatch
from serve.api import build_api
from serve.app import open_service
from serve.backends import LocalBackend
from serve.config import ServeConfig
from serve.service import Service
from tests.serve.conftest import MODEL

STREAMED = {"model": MODEL, "prompt": "hi", "stream": True, "maskahead": {"ignore_stop": True}}

BAD_REQUESTS: list[tuple[dict[str, Any], int, str | None, str | None]] = [
    ({"model": "gpt"}, 404, "model", "model_not_found"),
    ({"temperature": 3}, 400, "temperature", None),
    ({"logit_bias": {"4": 1}}, 400, "logit_bias", None),
    ({"temprature": 1}, 400, "temprature", "unknown_parameter"),
    ({"max_tokens": 10_000}, 400, "max_tokens", "context_length_exceeded"),
    ({"prompt": [3]}, 400, "prompt", None),
    ({"prompt": [100_000]}, 400, "prompt", None),
    ({"prompt": "hello " * 1000}, 400, "prompt", "context_length_exceeded"),
    ({"temperature": 1e-5}, 400, "temperature", None),
    ({"n": 100}, 400, "n", None),
    ({"maskahead": {"method": "order"}}, 400, "maskahead.method", None),
    ({"maskahead": {"gamma": 0.1}}, 400, "maskahead", None),
    (
        {"maskahead": {"method": "threshold", "edit_tau": 0, "edit_passes": 10**12}},
        400,
        "maskahead.edit_passes",
        None,
    ),
]


UNPAIRED = '{"model": "tiny", "prompt": "a", "maskahead": {"\\ud800": 1}}'
"""An unknown field whose name is half of a surrogate pair: JSON's, and no text."""


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("fields", "status", "param", "code"), BAD_REQUESTS)
def test_bad_requests_get_an_error_in_openais_shape(
    http: httpx.AsyncClient,
    fields: dict[str, Any],
    status: int,
    param: str | None,
    code: str | None,
    stream: bool,
) -> None:
    body = {"model": MODEL, "prompt": "hi", "stream": stream} | fields
    response = asyncio.run(http.post("/v1/completions", json=body))
    assert response.status_code == status
    error = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert (error["param"], error["code"]) == (param, code)
    if param is not None:
        assert param.split(".")[0] in error["message"] or param == "n"


@pytest.mark.parametrize(
    ("method", "path", "content", "status", "code"),
    [
        ("GET", "/v1/nothing", None, 404, "not_found"),
        ("GET", "/v1/completions", None, 405, "method_not_allowed"),
        ("POST", "/v1/completions", "{no json", 400, "bad_json"),
        ("POST", "/v1/chat/completions", "[1]", 400, None),
        ("POST", "/v1/chat/completions", "{}", 400, "missing_parameter"),
        ("POST", "/v1/chat/completions", "", 400, "missing_parameter"),
        ("POST", "/v1/completions", UNPAIRED, 400, "unknown_parameter"),
        ("GET", "/v1/models/gpt", None, 404, "model_not_found"),
        ("GET", "/docs", None, 404, "not_found"),
    ],
)
def test_everything_else_gets_that_shape_too(
    http: httpx.AsyncClient,
    method: str,
    path: str,
    content: str | None,
    status: int,
    code: str | None,
) -> None:
    headers = {"Content-Type": "application/json"}
    response = asyncio.run(http.request(method, path, content=content, headers=headers))
    assert response.status_code == status
    error = response.json()["error"]
    assert error["code"] == code
    assert error["param"] != "", "no field is null"


@pytest.mark.parametrize(
    ("content", "kind"), [("[1]", "application/json"), ("{}", "application/x-www-form-urlencoded")]
)
def test_a_body_that_is_no_json_object_is_told_what_it_must_be(
    http: httpx.AsyncClient, content: str, kind: str
) -> None:
    sent = http.post("/v1/completions", content=content, headers={"Content-Type": kind})
    message = asyncio.run(sent).json()["error"]["message"]
    assert message == "the body must be a JSON object, sent as Content-Type: application/json"


@pytest.fixture
def break_after(service: Service, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let the target's forwards fail once some of them have gone well."""
    assert isinstance(service.backend, LocalBackend)
    target = service.backend.batching.engine.target
    whole = target.forward

    def set_limit(num_forwards: int) -> None:
        forwards = iter(range(num_forwards))

        def forward(batch: CopyBatch) -> Tensor:
            if next(forwards, None) is None:
                raise RuntimeError("the device is gone")
            return whole(batch)

        monkeypatch.setattr(target, "forward", forward)

    return set_limit


@pytest.mark.parametrize("stream", [False, True])
def test_a_failure_before_the_first_chunk_has_a_status(
    http: httpx.AsyncClient, break_after: Callable[[int], None], stream: bool
) -> None:
    break_after(0)
    response = asyncio.run(http.post("/v1/completions", json=STREAMED | {"stream": stream}))
    assert response.status_code == 500
    assert response.json()["error"]["type"] == "server_error"
    assert "the device is gone" in response.json()["error"]["message"]


def test_a_failure_within_a_stream_is_an_event_before_its_end(
    http: httpx.AsyncClient, break_after: Callable[[int], None]
) -> None:
    break_after(10)
    response = asyncio.run(http.post("/v1/completions", json=STREAMED))
    assert response.status_code == 200
    parts = response.text.split("\n\n")[:-1]
    *chunks, error, done = [part.removeprefix("data: ") for part in parts]
    assert chunks
    assert all(json.loads(chunk)["choices"][0]["text"] for chunk in chunks)
    assert "the device is gone" in json.loads(error)["error"]["message"]
    assert done == "[DONE]"


def test_openais_client_raises_an_error_event(
    client: openai.AsyncOpenAI, break_after: Callable[[int], None]
) -> None:
    break_after(10)

    async def run() -> None:
        extra: dict[str, Any] = {"maskahead": {"ignore_stop": True}}
        async for _ in await client.completions.create(
            model=MODEL, prompt="hi", stream=True, extra_body=extra
        ):
            pass

    with pytest.raises(openai.APIError, match="the device is gone"):
        asyncio.run(run())


def test_a_failed_forward_leaves_the_endpoint_in_order(
    http: httpx.AsyncClient,
    break_after: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = STREAMED | {"stream": False, "maskahead": None}
    before = asyncio.run(http.post("/v1/completions", json=body)).json()
    break_after(2)
    assert asyncio.run(http.post("/v1/completions", json=body)).status_code == 500
    monkeypatch.undo()
    after = asyncio.run(http.post("/v1/completions", json=body)).json()
    assert after["choices"] == before["choices"]


def test_a_target_that_has_ended_is_neither_ready_nor_healthy(serve_config: ServeConfig) -> None:
    ended = open_service(serve_config)
    ended.backend.close()
    transport = httpx.ASGITransport(build_api(ended))
    http = httpx.AsyncClient(transport=transport, base_url="http://localhost")

    async def run() -> list[httpx.Response]:
        paths = ("/healthz", "/readyz")
        return [await http.get(path) for path in paths] + [
            await http.post("/v1/completions", json=STREAMED)
        ]

    responses = asyncio.run(run())
    assert [response.status_code for response in responses] == [503, 503, 503]
    codes = [response.json()["error"]["code"] for response in responses]
    assert codes == ["unavailable", "not_ready", "unavailable"]


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("chat/completions", {"messages": [{"role": "user", "content": "hi " * 1000}]}, "messages"),
        ("chat/completions", {"max_completion_tokens": 10_000}, "max_completion_tokens"),
        ("completions", {"maskahead": {"method": "simsd", "gamma": 9}}, "maskahead"),
    ],
)
def test_the_field_that_a_client_sent_is_the_one_that_is_named(
    http: httpx.AsyncClient, path: str, fields: dict[str, Any], param: str
) -> None:
    asked = {"messages": [{"role": "user", "content": "hi"}]} if "chat" in path else {"prompt": "a"}
    response = asyncio.run(http.post(f"/v1/{path}", json={"model": MODEL} | asked | fields))
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, param)
    assert param in error["message"] or "gamma" in error["message"]


def test_more_answers_than_there_are_places_are_refused_before_a_prompt_is_read(
    http: httpx.AsyncClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body may name millions of them."""
    read: list[str] = []
    monkeypatch.setattr(service.codec, "encode", lambda text: read.append(text) or (5,))
    body = {"model": MODEL, "prompt": ["a"] * 1000, "n": 128}
    response = asyncio.run(http.post("/v1/completions", json=body))
    assert response.status_code == 400
    assert "128000 answers in one request; this endpoint takes 12" in response.text
    assert read == []
