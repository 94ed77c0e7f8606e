"""What the endpoint does, apart from HTTP: API requests in, streams of deltas out."""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import jinja2

from actors.batching import Delta
from decoders.refusals import check_request
from decoders.request import Request
from models.spec import TargetSpec
from models.text import TextCodec
from serve.backends import Backend
from serve.config import ServeConfig
from serve.errors import RETRY_AFTER, ApiError
from serve.events import EventLog
from serve.options import choice_seed, decode_options
from serve.schema import ChatRequest, CompletionRequest, GenerationRequest, Prompt

Deltas = AsyncGenerator[tuple[int, Delta], None]


@dataclass(frozen=True)
class Job:
    """One API request, ready to run: choice i is the answer to ``requests[i]``."""

    id: str
    created: int
    model: str
    requests: tuple[Request, ...]
    stop: tuple[str, ...]
    num_prompt_tokens: int


class Service:
    """Checks requests against the served target and runs them on ``backend``."""

    def __init__(
        self, config: ServeConfig, spec: TargetSpec, codec: TextCodec, backend: Backend
    ) -> None:
        self.config = config
        self.spec = spec
        self.codec = codec
        self.backend = backend
        self.started = int(time.time())
        self._num_answers = 0

    def completion_job(self, body: CompletionRequest) -> Job:
        """The job of a text completion: prompts as they are, no template."""
        return self._job("cmpl", body, [self._ids(prompt) for prompt in body.prompt])

    def chat_job(self, body: ChatRequest) -> Job:
        """The job of a conversation under the target's chat template."""
        try:
            ids = self.codec.encode_chat([message.for_template() for message in body.messages])
        except (jinja2.TemplateError, ValueError) as error:
            raise ApiError(400, f"messages: {error}", param="messages") from error
        return self._job("chatcmpl", body, [ids])

    def event_logs(self, job: Job) -> dict[int, EventLog]:
        """What writes the events of every watched choice."""
        return {
            index: EventLog(request, self.spec, self.codec)
            for index, request in enumerate(job.requests)
            if request.watched
        }

    def check_model(self, name: str) -> None:
        """Refuse a model name that is not the served one."""
        served = self.config.model_name
        if name != served:
            message = f"model {name!r} is not served here; valid: {served!r}"
            raise ApiError(404, message, param="model", code="model_not_found")

    async def run(self, job: Job) -> Deltas:
        """``(choice, delta)`` of all choices as they come; closing it cancels what still runs.

        Refuses at the first step when too many answers are under way.
        """
        self._claim(len(job.requests))
        try:
            streams = [self.backend.stream(request, job.stop) for request in job.requests]
            async with aclosing(merge(streams)) as deltas:
                async for item in deltas:
                    yield item
        finally:
            self._num_answers -= len(job.requests)

    def _ids(self, prompt: Prompt) -> tuple[int, ...]:
        return self.codec.encode(prompt) if isinstance(prompt, str) else prompt

    def _job(self, kind: str, body: GenerationRequest, prompts: Sequence[tuple[int, ...]]) -> Job:
        self.check_model(body.model)
        job_id = f"{kind}-{uuid.uuid4().hex}"
        requests: list[Request] = []
        for ids in prompts:
            room = self.spec.max_positions - len(ids)
            options = decode_options(self.config.decode, body, room)
            for number in range(body.num_choices):
                seed = choice_seed(body.seed, number)
                choice_id = f"{job_id}-{len(requests)}"
                requests.append(Request(choice_id, ids, options, seed, body.watched))
            self._check_tokens(requests[-1])
        num_prompt_tokens = sum(len(ids) for ids in prompts)
        created = int(time.time())
        return Job(job_id, created, body.model, tuple(requests), body.stop, num_prompt_tokens)

    def _check_tokens(self, request: Request) -> None:
        try:
            check_request(request, self.spec)
        except ValueError as error:
            raise ApiError(400, str(error), param="prompt") from error

    def _claim(self, num_answers: int) -> None:
        most = self.config.max_answers
        if num_answers > most:
            raise ApiError(
                400, f"{num_answers} answers in one request; this endpoint takes {most}", param="n"
            )
        if self._num_answers + num_answers > most:
            message = f"{self._num_answers} answers are under way, of at most {most}: try again"
            raise ApiError(503, message, code="overloaded", headers=RETRY_AFTER)
        self._num_answers += num_answers


async def merge(streams: Sequence[AsyncGenerator[Delta, None]]) -> Deltas:
    """Items of several streams as they come, each with its stream's index.

    The first error ends all of them; closing the merged stream closes every part.
    """
    items: asyncio.Queue[tuple[int, Delta] | Exception] = asyncio.Queue()

    async def pump(index: int, stream: AsyncGenerator[Delta, None]) -> None:
        try:
            async with aclosing(stream):
                async for delta in stream:
                    items.put_nowait((index, delta))
        except Exception as error:
            items.put_nowait(error)

    tasks = [asyncio.create_task(pump(i, stream)) for i, stream in enumerate(streams)]
    num_running = len(tasks)
    try:
        while num_running:
            item = await items.get()
            if isinstance(item, Exception):
                raise item
            num_running -= item[1].result is not None
            yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
