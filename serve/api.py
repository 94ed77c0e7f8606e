"""The HTTP routes of one service: a plain FastAPI application, with or without Ray around it."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.types import Send

from actors.engine_stats import EngineStats
from serve.answers import Chunks, chat, chat_chunks, completion, completion_chunks
from serve.errors import DOCUMENTED, RETRY_AFTER, ApiError, as_api_error, install_handlers
from serve.guard import Guard
from serve.journal import Journal
from serve.keys import Keyring, known_lines
from serve.metrics import CONTENT_TYPE
from serve.options import request_options
from serve.reading import read
from serve.responses import Answer, ChatCompletion, Completion
from serve.schema import ChatRequest, CompletionRequest
from serve.service import Service
from serve.site import install_page
from serve.tokens import add_token_routes

EVENT = {
    "type": "object",
    "required": ["data"],
    "properties": {
        "data": {"type": "string", "description": "A chunk or an error as JSON; [DONE] at the end"}
    },
}
STREAMED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The whole answer, or its chunks as server-sent events",
        "content": {"text/event-stream": {"itemSchema": EVENT}},
    }
}
READY_TIMEOUT = 5.0
"""Seconds in which a ready target answers."""


def build_api(service: Service) -> FastAPI:
    """All routes of the endpoint; its end closes the service."""

    @asynccontextmanager
    async def lifespan(api: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(service.close)

    operation = service.config.serve
    api = FastAPI(
        title="Maskahead",
        lifespan=lifespan,
        responses=DOCUMENTED,
        docs_url=None,  # pages of scripts from elsewhere
        redoc_url=None,
    )
    install_handlers(api)
    install_page(api)
    api.add_middleware(
        Guard,
        operation=operation,
        keyring=Keyring(known_lines(operation)),
        journal=Journal(operation),
        metrics=service.metrics,
    )
    add_answer_routes(api, service)
    add_token_routes(api, service)
    add_model_routes(api, service)
    add_health_routes(api, service)
    return api


def add_answer_routes(api: FastAPI, service: Service) -> None:
    """Completions and chats, whole or as server-sent events."""

    @api.post("/v1/completions", response_model=Completion, responses=STREAMED)
    async def completions(body: CompletionRequest) -> Response:
        job = await read(lambda: service.completion_job(body), body.num_characters)
        if body.stream:
            chunks = completion_chunks(service, job, body.include_usage)
            return await event_stream(chunks, body.include_usage)
        return _plain(await completion(service, job))

    @api.post("/v1/chat/completions", response_model=ChatCompletion, responses=STREAMED)
    async def chat_completions(body: ChatRequest) -> Response:
        job = await read(lambda: service.chat_job(body), body.num_characters)
        if body.stream:
            chunks = chat_chunks(service, job, body.include_usage)
            return await event_stream(chunks, body.include_usage)
        return _plain(await chat(service, job))


def add_model_routes(api: FastAPI, service: Service) -> None:
    """The list of the one served model, and the model itself."""

    @api.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [model_card(service)]}

    @api.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        service.check_model(name)
        return model_card(service)


def add_health_routes(api: FastAPI, service: Service) -> None:
    """What probes and Prometheus ask."""

    @api.get("/healthz")
    async def healthz() -> dict[str, str]:
        """This process lives."""
        service.backend.check()
        return {"status": "ok"}

    @api.get("/readyz")
    async def readyz() -> Response:
        """The target answers."""
        if service.draining:
            reason = f"ending: {service.num_answers} answers are under way"
            return ApiError(503, reason, code="draining", headers=RETRY_AFTER).response()
        try:
            stats = await engine_stats(service)
        except Exception as error:
            reason = f"the target does not answer: {type(error).__name__} {error}"
            return ApiError(503, reason, code="not_ready", headers=RETRY_AFTER).response()
        running, waiting = stats.running, stats.waiting
        return JSONResponse({"status": "ready", "running": running, "waiting": waiting})

    @api.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """What Prometheus scrapes."""
        try:
            stats = await engine_stats(service)
        except Exception:  # the page itself says that the target does not answer
            stats = None
        return Response(service.metrics.page(stats), media_type=CONTENT_TYPE)


async def engine_stats(service: Service) -> EngineStats:
    """How the target's engine stands; raises when it does not answer in time."""
    return await asyncio.wait_for(service.backend.stats(), READY_TIMEOUT)


def model_card(service: Service) -> dict[str, Any]:
    """The served model, with what decides its answers and the run that found it."""
    config = service.config
    return {
        "id": config.model_name,
        "object": "model",
        "created": service.started,
        "owned_by": "maskahead",
        "maskahead": {
            "decode": config.decode.model_dump(),
            "methods": request_options(service.opened),
            "dtype": config.target.precision,
            "block_size": service.spec.block_size,
            "max_positions": service.spec.max_positions,
            "run_id": config.run_id,
            "certificate": config.stated_certificate,
            "refused": service.refused,
        },
    }


async def event_stream(chunks: Chunks, include_usage: bool) -> StreamingResponse:
    """Server-sent events. The first chunk is awaited here, while an error still has a status."""
    return EventStream(await anext(chunks), chunks, include_usage)


class EventStream(StreamingResponse):
    """Events of chunks, which are closed when the response ends, however it does: Starlette leaves
    an iterator to the garbage collector when its client leaves amid a chunk."""

    def __init__(self, first: Answer, rest: Chunks, include_usage: bool) -> None:
        self._rest = rest
        self._events = _events(first, rest, include_usage)
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        super().__init__(self._events, media_type="text/event-stream", headers=headers)

    async def stream_response(self, send: Send) -> None:
        async with aclosing(self._rest), aclosing(self._events):
            await super().stream_response(send)


async def _events(first: Answer, rest: Chunks, include_usage: bool) -> AsyncGenerator[str, None]:
    async with aclosing(rest):
        yield _event(first, include_usage)
        try:
            async for chunk in rest:
                yield _event(chunk, include_usage)
        except Exception as error:  # the status is out: an event has to say it
            yield f"data: {json.dumps(as_api_error(error).body())}\n\n"
        yield "data: [DONE]\n\n"


def _event(chunk: Answer, include_usage: bool) -> str:
    hidden = None if include_usage else {"usage"}
    return f"data: {chunk.model_dump_json(exclude=hidden)}\n\n"


def _plain(answer: Answer) -> Response:
    return Response(answer.model_dump_json(), media_type="application/json")
