"""The opt-in stream of rounds: OpenAI's client reads it, and it tells what was decoded."""

import asyncio
from typing import Any

import httpx
import openai
import pytest

from decoders.request import Request
from serve.backends import LocalBackend
from serve.service import Service
from tests.serve.conftest import MODEL

FIELDS: dict[str, Any] = {"model": MODEL, "temperature": 1.0, "seed": 11, "max_tokens": 24}
EVENTS = {"method": "chain", "budget": 4, "ignore_stop": True, "events": True}
PLAIN = {key: value for key, value in EVENTS.items() if key != "events"}


async def streamed(client: openai.AsyncOpenAI, own: dict[str, Any], **fields: Any) -> list[Any]:
    stream = await client.completions.create(
        **FIELDS, **fields, stream=True, extra_body={"maskahead": own}
    )
    return [choice async for chunk in stream for choice in chunk.choices]


def events_of(choices: list[Any]) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]:
    """``begin``, all rounds, ``end`` of one choice's chunks."""
    events = [choice.model_extra["maskahead"] for choice in choices]
    assert ["begin" in each for each in events] == [True] + [False] * (len(events) - 1)
    assert ["end" in each for each in events] == [False] * (len(events) - 1) + [True]
    return events[0]["begin"], [r for each in events for r in each["rounds"]], events[-1]["end"]


def test_events_are_the_rounds_of_offline_decoding(
    client: openai.AsyncOpenAI, service: Service
) -> None:
    choices = asyncio.run(streamed(client, EVENTS, prompt="hello"))
    begin, rounds, end = events_of(choices)
    ids = service.codec.encode("hello")
    job_options = service.config.decode.model_copy(
        update={"temperature": 1.0, "ignore_stop": True, "max_new_tokens": 24}
    )
    backend = service.backend
    assert isinstance(backend, LocalBackend)
    with backend.batching.exclusive() as engine:
        (result,) = engine.decode([Request("x", ids, job_options, noise_seed=11)])
    told = [(r["kind"], r["drafts"], r["accepted"]) for r in rounds]
    assert told == [(r.kind, r.drafts, r.accepted) for r in result.rounds]
    steps = [[[c[:2] for c in step] for step in r["steps"]] for r in rounds]
    assert steps == [[[list(c) for c in step] for step in r.steps] for r in result.rounds]
    assert tuple(end["token_ids"]) == result.token_ids
    assert (end["nfe"], end["forwards"]) == (result.nfe, result.forwards)
    assert rounds[-1]["nfe"] == result.nfe
    assert begin["decode"]["method"] == "chain"
    assert (begin["seed"], begin["promises_equality"]) == ("11", True)
    assert begin["prompt_tokens"] == len(ids)
    assert begin["limit"] == len(ids) + 24
    assert [fill[1] for fill in begin["tail"]] == list(ids[begin["start"] :])


def test_the_text_is_that_of_a_stream_without_events(client: openai.AsyncOpenAI) -> None:
    async def run() -> tuple[list[Any], list[Any]]:
        watched = await streamed(client, EVENTS, prompt="hello")
        return watched, await streamed(client, PLAIN, prompt="hello")

    watched, plain = asyncio.run(run())
    assert "".join(c.text for c in watched) == "".join(c.text for c in plain)
    assert not any(c.model_extra for c in plain), "no field where nobody asked"


def test_every_commit_has_its_text_and_confidence(
    client: openai.AsyncOpenAI, service: Service
) -> None:
    _, rounds, _ = events_of(asyncio.run(streamed(client, EVENTS, prompt="hello")))
    commits = [c for r in rounds for step in r["steps"] for c in step]
    assert len({c[0] for c in commits}) == len(commits)
    for _, token, text, confidence in commits:
        assert text == service.codec.piece(token)
        assert 0 < confidence <= 1
    drafted = [node for r in rounds for node in r["tree"]]
    assert drafted
    assert all(0 <= node["mass"] <= 1 for node in drafted)
    assert sum(node["accepted"] for node in drafted) == sum(r["accepted"] for r in rounds)


def test_a_chat_carries_events_too(client: openai.AsyncOpenAI) -> None:
    async def run() -> tuple[list[Any], Any]:
        fields: dict[str, Any] = FIELDS | {"messages": [{"role": "user", "content": "hi"}]}
        stream = await client.chat.completions.create(
            **fields, stream=True, extra_body={"maskahead": EVENTS}
        )
        choices = [choice async for chunk in stream for choice in chunk.choices]
        return choices, await client.chat.completions.create(
            **fields, extra_body={"maskahead": PLAIN}
        )

    choices, plain = asyncio.run(run())
    text = "".join(choice.delta.content or "" for choice in choices)
    assert text == plain.choices[0].message.content
    _, rounds, end = events_of([c for c in choices if c.model_extra])
    assert rounds[-1]["nfe"] == end["nfe"] == plain.usage.maskahead["nfe"]


def test_choices_are_told_apart(client: openai.AsyncOpenAI) -> None:
    choices = asyncio.run(streamed(client, EVENTS, prompt=["hello", "you"]))
    for index in (0, 1):
        begin, _, end = events_of([choice for choice in choices if choice.index == index])
        assert begin["prompt_tokens"] > 0
        assert len(end["token_ids"]) == 24


@pytest.mark.parametrize(
    ("stream", "events"), [(False, True), (True, "yes"), (True, 1), (False, {})]
)
def test_events_without_a_stream_are_refused(
    http: httpx.AsyncClient, stream: bool, events: object
) -> None:
    body = {"model": MODEL, "prompt": "hi", "stream": stream, "maskahead": {"events": events}}
    response = asyncio.run(http.post("/v1/completions", json=body))
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "maskahead.events"
    assert "true with stream" in response.json()["error"]["message"]


def test_events_may_be_off(http: httpx.AsyncClient) -> None:
    body = {"model": MODEL, "prompt": "hi", "maskahead": {"events": False}}
    response = asyncio.run(http.post("/v1/completions", json=body))
    assert response.status_code == 200
    assert "maskahead" not in response.json()["choices"][0]
