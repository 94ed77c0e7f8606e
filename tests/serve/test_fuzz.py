"""Whatever bytes arrive, every request is answered as its schema says or refused in OpenAI's shape,
and nothing is left of it."""

import asyncio
import json
import os
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import load_all_checks, not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from serve.api import build_api
from serve.service import Service
from tests.serve.conftest import MODEL

SLOW_BUT_WELL = [
    HealthCheck.function_scoped_fixture,
    HealthCheck.too_slow,
    HealthCheck.filter_too_much,
    HealthCheck.data_too_large,
]
EXAMPLES = os.environ.get("FUZZ_EXAMPLES")
"""Of every kind, where more than the usual few are asked for: 1,000 take minutes."""
PATHS = ("/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize")
ENCODINGS = ("utf-8", "utf-16", "utf-32", "latin-1", "utf-7")

TEXT = st.text(st.characters(exclude_categories=()), max_size=8)
"""With halves of surrogate pairs, which JSON can write and nothing can encode."""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner),
    max_leaves=12,
)
FIELDS = (
    *("n", "seed", "stop", "stream", "stream_options", "temperature", "top_p", "max_tokens"),
    *("maskahead", "logprobs", "top_logprobs", "messages", "prompt", "tokens", "user", "tools"),
)
"""Fields with a meaning, each given anything at all."""


def assert_answered(response: httpx.Response) -> None:
    """An answer, or an error that can be read; never a failure of ours."""
    assert response.status_code in (200, 400, 404, 405, 413), response.text
    if response.status_code == 200:
        return
    error = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert error["message"]


async def send(http: httpx.AsyncClient, path: str, body: bytes, kind: str) -> httpx.Response:
    headers = {"Content-Type": kind}
    return await asyncio.wait_for(http.post(path, content=body, headers=headers), 20)


@settings(max_examples=int(EXAMPLES or 40), deadline=None, suppress_health_check=SLOW_BUT_WELL)
@given(
    path=st.sampled_from(PATHS), fields=st.dictionaries(st.sampled_from(FIELDS), JSON), data=JSON
)
def test_any_json_is_answered(
    http: httpx.AsyncClient, service: Service, path: str, fields: dict[str, Any], data: Any
) -> None:
    whole = {"model": MODEL, "prompt": "a", "max_tokens": 2} if "chat" not in path else {}
    for value in (data, whole | fields):
        body = json.dumps(value).encode()
        assert_answered(asyncio.run(send(http, path, body, "application/json")))
    assert service.num_answers == 0


@settings(max_examples=int(EXAMPLES or 40), deadline=None, suppress_health_check=SLOW_BUT_WELL)
@given(
    path=st.sampled_from(PATHS),
    body=st.binary(max_size=60)
    | st.text(max_size=20).map(lambda text: json.dumps({"prompt": text}).encode())
    | st.sampled_from(ENCODINGS).map(lambda name: '{"model": "tiny", "prompt": "ü"}'.encode(name)),
    kind=st.sampled_from(
        ("application/json", "text/plain", "application/json; charset=latin-1", "")
    ),
)
def test_any_bytes_are_answered(
    http: httpx.AsyncClient, service: Service, path: str, body: bytes, kind: str
) -> None:
    assert_answered(asyncio.run(send(http, path, body, kind)))
    assert service.num_answers == 0


@pytest.mark.parametrize(
    "body",
    [b"[" * 100_000, b'{"model":' * 50_000, b'{"prompt": ' + b"9" * 5000 + b"}", b"\xef\xbb\xbf{}"],
    ids=["nested lists", "nested objects", "a huge number", "a byte order mark"],
)
def test_bodies_that_break_parsers_are_refused(http: httpx.AsyncClient, body: bytes) -> None:
    for path in PATHS:
        assert_answered(asyncio.run(send(http, path, body, "application/json")))


def name_the_model(case: schemathesis.Case) -> None:
    """Put the served model's name, which is never guessed, where a request has some other."""
    for values, field in ((case.body, "model"), (case.path_parameters, "name")):
        if isinstance(values, dict) and field in values:
            values[field] = MODEL


def test_requests_made_from_the_served_schema_conform_to_it(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Schemathesis, on every route, with good and with broken input."""
    load_all_checks()
    anyone = service.config.serve.model_copy(update={"allow_no_keys": True})  # by any host name
    monkeypatch.setattr(service, "config", service.config.model_copy(update={"serve": anyone}))
    api = build_api(service)
    schema = schemathesis.openapi.from_asgi("/openapi.json", api)
    checks = [
        not_a_server_error,
        status_code_conformance,
        content_type_conformance,
        response_schema_conformance,
    ]
    found = list(schema.get_all_operations())
    operations = [each.ok() for each in found if isinstance(each, Ok)]
    assert len(operations) == len(found)
    assert {operation.path for operation in operations} >= {*PATHS, "/v1/models", "/metrics"}
    for operation in operations:
        strategy = operation.as_strategy()

        @settings(
            max_examples=int(EXAMPLES or 15), deadline=None, suppress_health_check=SLOW_BUT_WELL
        )
        @given(case=strategy, named=st.booleans())
        def conforms(case: schemathesis.Case, named: bool) -> None:
            if named:
                name_the_model(case)
            case.call_and_validate(checks=checks)

        conforms()
    assert service.num_answers == 0
