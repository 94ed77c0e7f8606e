"""One request and what became of it: an answer with its times, or an error of a kind."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter
from typing import Any

import httpx

from benchmarks.load.config import Endpoint

SAID = 200
"""Bytes that are kept of what an endpoint says in another shape than OpenAI's."""


@dataclass(frozen=True)
class Question:
    """What is asked: the fields of a request, apart from its model and the endpoint's own."""

    id: str
    fields: dict[str, Any]
    """With ``messages`` a conversation, with ``prompt`` a plain completion."""


@dataclass(frozen=True)
class Sample:
    """One request. Times are seconds since it was sent, ``sent`` since the level began.

    ``late`` is how long after its due time an open loop sent it. Without an ``error`` it has text
    that is complete; ``gaps`` lie between the arrivals of its pieces.
    """

    id: str
    sent: float
    seconds: float
    late: float = 0.0
    error: str | None = None
    said: str = ""
    """What the endpoint answered in place of a stream."""
    first_text: float | None = None
    gaps: tuple[float, ...] = ()
    tokens: int = 0
    nfe: int | None = None
    text: str = ""

    @property
    def per_token(self) -> float | None:
        """Mean seconds a token once text has begun; none for an answer of one token."""
        if self.first_text is None or self.tokens < 2:
            return None
        return (self.seconds - self.first_text) / (self.tokens - 1)


class Failed(Exception):
    """A request that got no answer: the error's kind, and what the endpoint said."""

    def __init__(self, kind: str, said: str = "") -> None:
        super().__init__(kind)
        self.kind = kind
        self.said = said


@dataclass
class _Answer:
    started: float
    arrivals: list[float]
    text: str = ""
    tokens: int | None = None
    nfe: int | None = None
    finished: bool = False

    def take(self, chunk: dict[str, Any]) -> None:
        if chunk.get("error"):
            raise Failed("error amid the stream")
        for choice in chunk.get("choices", ()):
            text = choice.get("text") or (choice.get("delta") or {}).get("content") or ""
            if text:
                self.arrivals.append(perf_counter() - self.started)
                self.text += text
            self.finished |= choice.get("finish_reason") is not None
        if usage := chunk.get("usage"):
            self.tokens = usage.get("completion_tokens")
            self.nfe = (usage.get("maskahead") or {}).get("nfe")


async def ask(
    client: httpx.AsyncClient,
    endpoint: Endpoint,
    question: Question,
    timeout: float,
    began: float,
    due: float | None = None,
) -> Sample:
    """Send one request and read its stream to the end. Never raises for what an endpoint does;
    ``due`` is when an open loop wanted it sent, ``began`` when its level began."""
    started = perf_counter()
    answer = _Answer(started, [])
    error: str | None = None
    said = ""
    try:
        async with asyncio.timeout(timeout):
            await _read(client, endpoint, question, answer)
    except Failed as failure:
        error, said = failure.kind, failure.said
    except (TimeoutError, httpx.TimeoutException):
        error = "timeout"
    except httpx.ConnectError:
        error = "no connection"
    except httpx.HTTPError:
        error = "connection lost"
    arrivals = answer.arrivals
    return Sample(
        id=question.id,
        sent=started - began,
        seconds=perf_counter() - started,
        late=0.0 if due is None else max(0.0, started - began - due),
        error=error,
        said=said,
        first_text=arrivals[0] if arrivals else None,
        gaps=tuple(b - a for a, b in pairwise(arrivals)),
        tokens=answer.tokens or 0,
        nfe=answer.nfe,
        text=answer.text,
    )


async def _read(
    client: httpx.AsyncClient, endpoint: Endpoint, question: Question, answer: _Answer
) -> None:
    route = "chat/completions" if "messages" in question.fields else "completions"
    body = question.fields | {"stream": True, "stream_options": {"include_usage": True}}
    if endpoint.send:
        body["maskahead"] = endpoint.send
    async with client.stream("POST", f"{endpoint.url}/{route}", json=body) as response:
        if response.status_code != httpx.codes.OK:
            raise Failed(f"http {response.status_code}", _message(await response.aread()))
        async for data in _event_data(response):
            if data == b"[DONE]":
                break
            try:
                answer.take(json.loads(data))
            except (ValueError, TypeError, AttributeError) as error:
                raise Failed("not a stream of chunks") from error
    if not answer.finished:
        raise Failed("cut off")
    if answer.tokens is None:
        raise Failed("no usage")


def _message(body: bytes) -> str:
    """What an error's body says: OpenAI's message, or the beginning of any other text."""
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return " ".join(body[:SAID].decode(errors="replace").split())


async def _event_data(response: httpx.Response) -> AsyncIterator[bytes]:
    """The data of server-sent events. Lines are those of bytes: in text httpx ends one at every
    character that Unicode has for it, and JSON may hold some of these as they are."""
    rest = b""
    async for part in response.aiter_bytes():
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line.removeprefix(b"data:").strip()
