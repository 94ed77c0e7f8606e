"""One endpoint answers with several methods at once."""

import asyncio
from collections.abc import Iterator

import httpx
import pytest

from decoders.options import DecodeOptions
from serve.api import build_api, model_card
from serve.app import open_service
from serve.backends import LocalBackend
from serve.config import ServeConfig
from serve.service import Service

ASKED = [
    {"maskahead": {"method": "order"}},
    {"maskahead": {"method": "order", "budget": "auto"}, "temperature": 1.0, "seed": 3},
    {"maskahead": {"method": "standard"}, "temperature": 0.7, "seed": 5},
    {"maskahead": {"method": "threshold", "tau": 0.1}},
    {"maskahead": {"method": "chain", "budget": 2}},
    {"maskahead": {"method": "wtree"}, "temperature": 1.0, "seed": 9},
]


@pytest.fixture(scope="module")
def service(serve_config: ServeConfig) -> Iterator[Service]:
    opened = open_service(serve_config.model_copy(update={"methods": ("order",), "max_batch": 6}))
    yield opened
    opened.backend.close()


async def ask(service: Service, fields: dict[str, object]) -> httpx.Response:
    transport = httpx.ASGITransport(build_api(service))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        body = {"model": service.config.model_name, "prompt": "hello", "max_tokens": 20}
        return await http.post("/v1/completions", json=body | fields)


def test_answers_of_several_methods_in_one_batch_equal_each_alone(service: Service) -> None:
    async def together() -> list[httpx.Response]:
        return await asyncio.gather(*(ask(service, fields) for fields in ASKED))

    texts = [found.json()["choices"][0]["text"] for found in asyncio.run(together())]
    alone = [asyncio.run(ask(service, fields)).json()["choices"][0]["text"] for fields in ASKED]
    assert texts == alone
    assert len(set(texts)) > 3


def test_a_method_whose_drafter_is_not_loaded_is_refused_with_those_that_are(
    service: Service,
) -> None:
    found = asyncio.run(ask(service, {"maskahead": {"method": "sets"}}))
    assert found.status_code == 400
    said = found.json()["error"]["message"]
    assert "maskahead.method sets" in said
    assert "valid: chain, order, standard, threshold, wtree" in said
    assert isinstance(service.backend, LocalBackend)
    assert "sets" not in service.backend.batching.engine.proposers
    assert service.config.decode == DecodeOptions(method="chain", budget=4, max_new_tokens=24)


def test_the_model_card_lists_the_methods_and_their_options(service: Service) -> None:
    methods = model_card(service)["maskahead"]["methods"]
    assert list(methods) == ["chain", "order", "standard", "threshold", "wtree"]
    assert "tau" in methods["threshold"]
    assert "cap" not in methods["threshold"]
    for method in methods:
        assert asyncio.run(ask(service, {"maskahead": {"method": method}})).status_code == 200


def test_an_answer_that_the_cache_could_never_hold_is_refused_with_numbers(
    serve_config: ServeConfig,
) -> None:
    small = open_service(serve_config.model_copy(update={"max_cache_tokens": 128}))
    try:
        found = asyncio.run(ask(small, {"max_tokens": 200, "maskahead": {"ignore_stop": True}}))
        assert found.status_code == 400
        said = found.json()["error"]["message"]
        assert "max_new_tokens 200 take up to 256 tokens of prefix cache" in said
        assert "there are 128 (max_cache_tokens)" in said
        assert asyncio.run(ask(small, {"max_tokens": 60})).status_code == 200
    finally:
        small.backend.close()
