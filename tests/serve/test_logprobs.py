"""Log-probabilities in both of OpenAI's forms, streamed and in one piece."""

import asyncio
import math
from typing import Any

import httpx
import openai
import pytest

from decoders.request import TokenLogprob
from serve.service import Service
from serve.spelling import CompletionSpelling, name_of
from tests.serve.conftest import MODEL

MESSAGES: Any = [{"role": "user", "content": "hi"}]
FIXED: dict[str, Any] = {
    "model": MODEL,
    "seed": 3,
    "extra_body": {"maskahead": {"ignore_stop": True}},
}


def test_a_chats_logprobs_have_bytes_and_alternatives(
    client: openai.AsyncOpenAI, service: Service
) -> None:
    async def run() -> tuple[Any, list[Any]]:
        fields = FIXED | {"messages": MESSAGES, "logprobs": True, "top_logprobs": 4}
        plain = await client.chat.completions.create(**fields)
        stream = await client.chat.completions.create(**fields, stream=True)
        return plain, [chunk async for chunk in stream]

    plain, chunks = asyncio.run(run())
    content = plain.choices[0].logprobs.content
    assert len(content) == plain.usage.completion_tokens == 24
    spelt = b"".join(bytes(entry.bytes) for entry in content)
    special = {service.codec.bytes_of(token) for token in range(4)}
    assert not any(bytes(entry.bytes) in special for entry in content), "else the text is shorter"
    assert spelt.decode(errors="replace") == plain.choices[0].message.content
    for entry in content:
        assert (entry.token, entry.logprob) == (
            entry.top_logprobs[0].token,
            entry.top_logprobs[0].logprob,
        ), "greedy"
        values = [alternative.logprob for alternative in entry.top_logprobs]
        assert len(values) == 4
        assert values == sorted(values, reverse=True)
        assert sum(map(math.exp, values)) <= 1 + 1e-9
    streamed = [
        entry
        for chunk in chunks
        if chunk.choices[0].logprobs is not None
        for entry in chunk.choices[0].logprobs.content
    ]
    assert streamed == content


def test_a_completions_logprobs_are_four_lists(client: openai.AsyncOpenAI) -> None:
    async def run() -> tuple[Any, list[Any]]:
        fields = FIXED | {"prompt": "hello", "logprobs": 2, "temperature": 1.0}
        plain = await client.completions.create(**fields)
        stream = await client.completions.create(**fields, stream=True)
        return plain, [chunk async for chunk in stream]

    plain, chunks = asyncio.run(run())
    choice = plain.choices[0]
    told = choice.logprobs
    lists = (told.tokens, told.token_logprobs, told.top_logprobs, told.text_offset)
    assert {len(each) for each in lists} == {24}
    assert all(0 <= offset <= len(choice.text) for offset in told.text_offset)
    for token, logprob, top in zip(*lists[:3], strict=True):
        assert top[token] == logprob
        assert 1 <= len(top) <= 3
    for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        parts = [getattr(chunk.choices[0].logprobs, name) for chunk in chunks]
        assert [entry for part in parts for entry in part] == getattr(told, name)


def test_without_alternatives_only_the_tokens_are_told(client: openai.AsyncOpenAI) -> None:
    async def run() -> tuple[Any, Any]:
        text = await client.completions.create(**FIXED, prompt="hello", logprobs=0)
        chat = await client.chat.completions.create(**FIXED, messages=MESSAGES, logprobs=True)
        return text.choices[0].logprobs, chat.choices[0].logprobs

    text, chat = asyncio.run(run())
    assert text.top_logprobs is None
    assert all(entry.top_logprobs == [] for entry in chat.content)


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("completions", {"prompt": "a", "logprobs": 21}, "logprobs"),
        ("completions", {"prompt": "a", "logprobs": -1}, "logprobs"),
        ("chat/completions", {"messages": MESSAGES, "logprobs": 1}, "logprobs"),
        ("chat/completions", {"messages": MESSAGES, "top_logprobs": 2}, "top_logprobs"),
        (
            "chat/completions",
            {"messages": MESSAGES, "logprobs": True, "top_logprobs": 21},
            "top_logprobs",
        ),
    ],
)
def test_what_cannot_be_told_is_refused_by_name(
    http: httpx.AsyncClient, path: str, fields: dict[str, Any], param: str
) -> None:
    response = asyncio.run(http.post(f"/v1/{path}", json={"model": MODEL} | fields))
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)


def test_offsets_count_the_characters_before_a_token(service: Service) -> None:
    ids = service.codec.encode("grüß 🙂!")
    spelling = CompletionSpelling(service.codec)
    told = spelling.spell([TokenLogprob(token, -1.0) for token in ids], asked=0)
    starts = []
    for number in range(len(ids)):
        whole = service.codec.decode(ids[:number])
        starts.append(len(whole.rstrip("\N{REPLACEMENT CHARACTER}")))
    assert told.text_offset == starts


def test_parts_of_a_character_are_named_by_their_bytes() -> None:
    assert name_of("ü".encode()) == "ü"
    assert name_of("🙂".encode()[:2]) == "bytes:\\xf0\\x9f"
