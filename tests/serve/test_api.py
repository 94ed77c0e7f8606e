"""The endpoint without Ray: OpenAI's client against the application in this process."""

import asyncio
from collections.abc import Awaitable
from time import sleep
from typing import Any

import httpx
import openai
import pytest

from decoders.request import Request
from serve.api import build_api
from serve.backends import LocalBackend
from serve.schema import CompletionRequest
from serve.service import Service
from tests.serve.conftest import MODEL
from tests.serve.listening import listening

MESSAGES: Any = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
SAMPLED: dict[str, Any] = {"model": MODEL, "temperature": 1.0, "seed": 11}
ENDLESS = {"maskahead": {"ignore_stop": True}}


async def plain_and_streamed(client: openai.AsyncOpenAI, **fields: Any) -> tuple[Any, list[Any]]:
    """The same completion in one piece and in chunks."""
    plain = await client.completions.create(**SAMPLED, **fields)
    stream = await client.completions.create(
        **SAMPLED, **fields, stream=True, stream_options={"include_usage": True}
    )
    return plain, [chunk async for chunk in stream]


def test_a_streamed_completion_equals_the_plain_one(client: openai.AsyncOpenAI) -> None:
    plain, chunks = asyncio.run(plain_and_streamed(client, prompt="hello", extra_body=ENDLESS))
    choices = [choice for chunk in chunks for choice in chunk.choices]
    assert "".join(choice.text for choice in choices) == plain.choices[0].text
    assert len(choices) > 2
    assert [choice.finish_reason for choice in choices[:-1]] == [None] * (len(choices) - 1)
    assert choices[-1].finish_reason == plain.choices[0].finish_reason == "length"
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == plain.usage.completion_tokens == 24
    assert chunks[-1].usage.maskahead["nfe"] == plain.usage.maskahead["nfe"] > 0
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)


def test_a_streamed_chat_equals_the_plain_one(client: openai.AsyncOpenAI) -> None:
    async def run() -> tuple[Any, list[Any]]:
        plain = await client.chat.completions.create(**SAMPLED, messages=MESSAGES)
        stream = await client.chat.completions.create(**SAMPLED, messages=MESSAGES, stream=True)
        return plain, [chunk async for chunk in stream]

    plain, chunks = asyncio.run(run())
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert deltas[0].role == plain.choices[0].message.role == "assistant"
    assert "".join(delta.content or "" for delta in deltas) == plain.choices[0].message.content
    assert chunks[-1].choices[0].finish_reason == plain.choices[0].finish_reason
    assert len({chunk.id for chunk in chunks}) == 1


def test_answers_and_usage_are_those_of_offline_decoding(
    client: openai.AsyncOpenAI, service: Service
) -> None:
    ids = service.codec.encode_chat(MESSAGES)
    options = service.config.decode.model_copy(update={"temperature": 1.0})
    backend = service.backend
    assert isinstance(backend, LocalBackend)
    with backend.batching.exclusive() as engine:
        (result,) = engine.decode([Request("x", ids, options, noise_seed=11)])
    chat = asyncio.run(client.chat.completions.create(**SAMPLED, messages=MESSAGES))
    assert chat.choices[0].message.content == service.codec.decode(result.token_ids)
    assert chat.usage is not None
    assert chat.usage.prompt_tokens == len(ids)
    assert chat.usage.completion_tokens == len(result.token_ids)
    assert chat.usage.total_tokens == len(ids) + len(result.token_ids)
    effort = (chat.usage.model_extra or {})["maskahead"]
    assert effort["nfe"] == result.nfe
    # A prompt that the endpoint knows already needs no prefill.
    assert result.forwards - 1 <= effort["forwards"] <= result.forwards
    assert effort["tokens_per_forward"] == round(result.tokens_per_forward, 4)


def test_temperature_0_is_greedy_whatever_the_seed(client: openai.AsyncOpenAI) -> None:
    async def texts(**fields: Any) -> set[str]:
        answers = [
            await client.completions.create(model=MODEL, prompt="hello", **fields, seed=seed)
            for seed in range(3)
        ]
        return {answer.choices[0].text for answer in answers}

    assert len(asyncio.run(texts(temperature=0))) == 1
    assert len(asyncio.run(texts(temperature=1))) == 3


def test_without_a_seed_samples_differ_and_with_one_they_repeat(
    client: openai.AsyncOpenAI,
) -> None:
    async def texts(**fields: Any) -> list[str]:
        answers = [
            await client.completions.create(model=MODEL, prompt="a", temperature=1, **fields)
            for _ in range(2)
        ]
        return [answer.choices[0].text for answer in answers]

    fresh, seeded = asyncio.run(texts()), asyncio.run(texts(seed=4))
    assert fresh[0] != fresh[1]
    assert seeded[0] == seeded[1]


def test_choices_of_several_prompts_stand_in_order(client: openai.AsyncOpenAI) -> None:
    async def run() -> tuple[Any, Any, list[Any]]:
        many, chunks = await plain_and_streamed(client, prompt=["hello", "you"], n=2)
        one = await client.completions.create(**SAMPLED, prompt="you")
        return many, one, chunks

    many, one, chunks = asyncio.run(run())
    assert [choice.index for choice in many.choices] == [0, 1, 2, 3]
    assert many.choices[2].text == one.choices[0].text
    assert len({choice.text for choice in many.choices}) == 4
    texts = [""] * 4
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == [choice.text for choice in many.choices]
    efforts = [usage.maskahead["accepted_per_round"] for usage in (many.usage, chunks[-1].usage)]
    assert efforts[0] == efforts[1], "in the choices' order, whichever ends first"
    assert many.usage.prompt_tokens == len(("hello", "you"))
    assert many.usage.prompt_tokens_details.cached_tokens == 0, "no whole block"


def test_token_ids_are_taken_as_they_are(client: openai.AsyncOpenAI, service: Service) -> None:
    ids = list(service.codec.encode("hello"))

    async def run() -> tuple[Any, Any]:
        text = await client.completions.create(model=MODEL, prompt="hello")
        return text, await client.completions.create(model=MODEL, prompt=ids)

    text, tokens = asyncio.run(run())
    assert text.choices[0].text == tokens.choices[0].text


@pytest.mark.parametrize("method", ["standard", "chain", "threshold"])
def test_a_stop_string_is_kept_out_of_both_forms(client: openai.AsyncOpenAI, method: str) -> None:
    extra = {"maskahead": {"method": method, "ignore_stop": True}}

    async def run() -> None:
        free, _ = await plain_and_streamed(client, prompt="hello", extra_body=extra)
        text = free.choices[0].text
        stop = text[6:11]
        plain, chunks = await plain_and_streamed(
            client, prompt="hello", extra_body=extra, stop=[stop, "never said"]
        )
        assert plain.choices[0].text == text[: text.index(stop)]
        assert plain.choices[0].finish_reason == "stop"
        assert plain.usage.completion_tokens < free.usage.completion_tokens
        streamed = "".join(choice.text for chunk in chunks for choice in chunk.choices)
        assert streamed == plain.choices[0].text

    asyncio.run(run())


def test_the_served_model_is_listed_with_what_decides_its_answers(
    client: openai.AsyncOpenAI,
) -> None:
    async def run() -> tuple[Any, Any]:
        return await client.models.list(), await client.models.retrieve(MODEL)

    models, model = asyncio.run(run())
    assert models.data == [model]
    assert model.id == MODEL
    assert model.maskahead["decode"]["method"] == "chain"


def test_health_and_readiness_answer(http: httpx.AsyncClient) -> None:
    health, ready = asyncio.run(both(http.get("/healthz"), http.get("/readyz")))
    assert health.json() == {"status": "ok"}
    assert ready.json() == {"status": "ready", "running": 0, "waiting": 0}


async def both(*calls: Awaitable[httpx.Response]) -> list[httpx.Response]:
    return await asyncio.gather(*calls)


def test_more_answers_than_wait_are_refused_until_some_end(
    http: httpx.AsyncClient, service: Service
) -> None:
    body = {"model": MODEL, "prompt": "hi", "max_tokens": 20, "n": 6} | ENDLESS

    async def run() -> tuple[list[httpx.Response], httpx.Response]:
        first = await both(*(http.post("/v1/completions", json=body) for _ in range(3)))
        return first, await http.post("/v1/completions", json=body)

    responses, later = asyncio.run(run())
    assert service.config.max_answers == 12
    assert sorted(response.status_code for response in responses) == [200, 200, 503]
    refused = next(response for response in responses if response.status_code == 503)
    assert refused.headers["Retry-After"] == "1"
    assert refused.json()["error"]["code"] == "overloaded"
    assert later.status_code == 200


def test_a_complete_answer_holds_no_place_however_slowly_it_is_read(service: Service) -> None:
    async def run() -> None:
        body = CompletionRequest.model_validate({"model": MODEL, "prompt": "hi", "n": 2} | ENDLESS)
        deltas = service.run(service.completion_job(body))
        await anext(deltas)
        while service.num_answers:
            await asyncio.sleep(0.005)
        assert sum(delta.result is not None for _, delta in [each async for each in deltas]) == 2
        assert service.num_answers == 0

    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_client_that_leaves_frees_its_places_within_one_block(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over a socket, with every place taken, by the engine's own count of filled positions."""
    assert isinstance(service.backend, LocalBackend)
    engine = service.backend.batching
    target, num_answers = engine.engine.target, engine.max_batch
    whole = target.forward
    monkeypatch.setattr(target, "forward", lambda batch: sleep(0.05) or whole(batch))
    one: dict[str, Any] = {"model": MODEL, "prompt": "hi", "max_tokens": 1}
    one |= {"maskahead": {"method": "standard"}}
    own = one["maskahead"] | {"events": True, "ignore_stop": True}
    body = one | {"max_tokens": 400, "n": num_answers, "stream": True, "maskahead": own}
    with listening(build_api(service)) as url, httpx.Client(base_url=url, timeout=60) as http:
        with http.stream("POST", "/v1/completions", json=body) as response:
            next(response.iter_lines())
            left = engine.stats()
        effort = http.post("/v1/completions", json=one).json()["usage"]["maskahead"]
    stats = engine.stats()
    assert (left.running, stats.running, stats.waiting) == (num_answers, 0, 0)
    filled = stats.commits - left.commits - effort["nfe"]  # standard: one position a forward
    assert filled <= num_answers * service.spec.block_size


def test_options_of_one_request_leave_the_next_alone(client: openai.AsyncOpenAI) -> None:
    async def run() -> tuple[Any, Any, Any]:
        extra = {"maskahead": {"method": "standard"}}
        before = await client.completions.create(**SAMPLED, prompt="hi")
        other = await client.completions.create(**SAMPLED, prompt="hi", extra_body=extra)
        return before, other, await client.completions.create(**SAMPLED, prompt="hi")

    before, other, after = asyncio.run(run())
    assert before.choices == other.choices == after.choices
    assert before.usage.maskahead["nfe"] == after.usage.maskahead["nfe"]
    assert other.usage.maskahead["accepted_per_round"] == [0.0]


@pytest.mark.parametrize(
    ("extension", "told"),
    [
        ({"budget": 3}, ("chain", 3, "exact")),
        ({"method": "standard"}, ("standard", None, "exact")),
        ({"method": "threshold", "tau": 0.5}, ("threshold", None, "exact")),
    ],
)
def test_usage_says_how_an_answer_was_decoded(
    client: openai.AsyncOpenAI, extension: dict[str, Any], told: tuple[Any, ...]
) -> None:
    extra = {"maskahead": extension | {"ignore_stop": True}}
    answer = asyncio.run(client.completions.create(**SAMPLED, prompt="hi", extra_body=extra))
    effort = (answer.usage.model_extra or {})["maskahead"] if answer.usage else {}
    assert (effort["method"], effort["budget"], effort["promise"]) == told
    assert (effort["drafts"] > 0) == (told[0] == "chain")
    assert effort["accepted"] <= effort["drafts"]
