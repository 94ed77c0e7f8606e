"""What the endpoint does, apart from HTTP: API requests in, streams of deltas out."""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jinja2

from actors.batching import Delta
from cluster.configuration import RUNS
from decoders.refusals import check_request
from decoders.request import Request
from models.spec import TargetSpec
from models.text import TextCodec
from serve.account import Account
from serve.backends import Backend
from serve.config import ServeConfig
from serve.errors import RETRY_AFTER, ApiError
from serve.events import EventLog
from serve.journal import note
from serve.metrics import Metrics
from serve.moves import ServedSettings, check_in_place
from serve.options import choice_seed, decode_options
from serve.schema import ChatRequest, CompletionRequest, GenerationRequest, Message, Prompt

if TYPE_CHECKING:
    from serve.sampling import Sampler

Deltas = AsyncGenerator[tuple[int, Delta], None]

WARM_UP_PROMPT = "Hello"


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
        self.opened = self.config = config
        """With which the target was loaded; and what is served now."""
        self.spec = spec
        self.codec = codec
        self.backend = backend
        self.started = int(time.time())
        self.metrics = Metrics(config)
        self.sampler = open_sampler(config)
        self.draining = False
        """Whether only what is under way is still answered."""
        self.num_answers = 0
        """Answers in the batch and waiting."""

    async def warm_up(self) -> None:
        """Write one block by the served options before anybody is answered: first forwards take
        longer than others, and ``budget: auto`` measures what forwards cost, which takes seconds
        where no earlier process of this machine has."""
        own = {"max_new_tokens": self.spec.block_size, "ignore_stop": True}
        options = self.config.decode.model_copy(update=own)
        request = Request("warm-up", self.codec.encode(WARM_UP_PROMPT), options)
        async with aclosing(self.backend.stream(request, ())) as deltas:
            async for _ in deltas:
                pass

    def apply(self, settings: ServedSettings) -> None:
        """Serve other options on the same target from the next request on; what is under way keeps
        its own. Raises ``ValueError`` for options that need another drafter."""
        wanted = settings.applied_to(self.config)
        check_in_place(self.opened, wanted)
        self.config, self.draining = wanted, settings.draining
        self.metrics.served(wanted)

    def completion_job(self, body: CompletionRequest) -> Job:
        """The job of a text completion: prompts as they are, no template."""
        return self._job("cmpl", body, [self._ids(prompt) for prompt in body.prompt])

    def chat_job(self, body: ChatRequest) -> Job:
        """The job of a conversation under the target's chat template."""
        return self._job("chatcmpl", body, [self.chat_ids(body.messages)])

    def chat_ids(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """A conversation as the target reads it, up to the reply."""
        try:
            return self.codec.encode_chat([message.for_template() for message in messages])
        except (jinja2.TemplateError, ValueError) as error:
            raise ApiError(400, f"messages: {error}", param="messages") from error

    def event_logs(self, job: Job) -> dict[int, EventLog]:
        """What writes the events of every watched choice."""
        return {
            index: EventLog(request, self.spec, self.codec)
            for index, request in enumerate(job.requests)
            if request.watched
        }

    def check_model(self, name: str | None) -> None:
        """Refuse a model name that is not the served one."""
        served = self.config.model_name
        if name not in (None, served):
            message = f"model {name!r} is not served here; valid: {served!r}"
            raise ApiError(404, message, param="model", code="model_not_found")

    async def run(self, job: Job) -> Deltas:
        """``(choice, delta)`` of all choices as they come; closing it cancels what still runs.

        Refuses at the first step when too many answers are under way; an answer that is complete
        is none, however slowly it is read.
        """
        self._claim(len(job.requests))
        account = Account(job.requests)
        try:
            streams = [self.backend.stream(request, job.stop) for request in job.requests]
            async with aclosing(merge(streams, self.config.serve.request_seconds)) as deltas:
                async for index, delta in deltas:
                    account.see(index, delta)
                    self.num_answers -= delta.result is not None
                    yield index, delta
            account.ending = "finished"
        except Exception as error:
            account.ending, account.error = "failed", type(error).__name__
            raise
        finally:
            self.num_answers -= len(job.requests) - len(account.results)
            self._close(account)

    def _close(self, account: Account) -> None:
        account.close()
        self.metrics.finished(account)
        note(**account.facts())
        prompts = texts = None
        if self.config.serve.log_text:
            prompts = [self.codec.spell(request.prompt_ids) for request in account.requests]
            texts = account.texts
            note(prompts=prompts, texts=texts)
        if self.sampler is not None:
            self.sampler.offer(account, prompts, texts)

    def close(self) -> None:
        """Write the traces that wait, and let the target go."""
        if self.sampler is not None:
            self.sampler.close()
        self.backend.close()

    def _ids(self, prompt: Prompt) -> tuple[int, ...]:
        return self.codec.encode(prompt) if isinstance(prompt, str) else prompt

    def _job(self, kind: str, body: GenerationRequest, prompts: Sequence[tuple[int, ...]]) -> Job:
        self.check_model(body.model)
        job_id = f"{kind}-{uuid.uuid4().hex}"
        requests: list[Request] = []
        for ids in prompts:
            self._check_length(ids)
            room = self.spec.max_positions - len(ids)
            room = min(room, self.config.serve.max_answer_tokens or room)
            options = decode_options(self.config.decode, body, room)
            for number in range(body.num_choices):
                request = Request(
                    id=f"{job_id}-{len(requests)}",
                    prompt_ids=ids,
                    options=options,
                    noise_seed=choice_seed(body.seed, number),
                    watched=body.watched,
                    top_logprobs=body.top_logprobs_asked,
                )
                requests.append(request)
            self._check_tokens(requests[-1])
        num_prompt_tokens = sum(len(ids) for ids in prompts)
        created = int(time.time())
        return Job(job_id, created, body.model, tuple(requests), body.stop, num_prompt_tokens)

    def _check_length(self, ids: Sequence[int]) -> None:
        most = self.config.serve.max_prompt_tokens
        if most is not None and len(ids) > most:
            message = f"the prompt has {len(ids)} tokens; this endpoint takes {most}"
            raise ApiError(400, message, param="prompt", code="context_length_exceeded")

    def _check_tokens(self, request: Request) -> None:
        try:
            check_request(request, self.spec)
        except ValueError as error:
            raise ApiError(400, str(error), param="prompt") from error

    def _claim(self, num_answers: int) -> None:
        most = self.config.max_answers
        if self.draining:
            message = "this endpoint is ending, and finishes only what is under way"
            raise ApiError(503, message, code="draining", headers=RETRY_AFTER)
        if num_answers > most:
            raise ApiError(
                400, f"{num_answers} answers in one request; this endpoint takes {most}", param="n"
            )
        if self.num_answers + num_answers > most:
            message = f"{self.num_answers} answers are under way, of at most {most}: try again"
            raise ApiError(503, message, code="overloaded", headers=RETRY_AFTER)
        self.num_answers += num_answers


def trace_store(config: ServeConfig) -> str | None:
    """Where request traces go, if any are kept."""
    if config.serve.trace_ratio == 0 or config.serve.trace_uri:
        return config.serve.trace_uri
    from cluster.tracking import tracking_uri

    return tracking_uri(RUNS)


def open_sampler(config: ServeConfig) -> "Sampler | None":
    """What keeps request traces, if any are kept; else MLflow is not even imported."""
    uri = trace_store(config)
    if config.serve.trace_ratio == 0 or uri is None:
        return None
    from cluster.tracking import Tracking
    from cluster.tracking.traces import RequestTraces
    from serve.sampling import Sampler

    artifacts = RUNS / "artifacts"
    return Sampler(config.serve.trace_ratio, lambda: RequestTraces(Tracking(uri, artifacts)))


async def merge(streams: Sequence[AsyncGenerator[Delta, None]], seconds: float) -> Deltas:
    """Items of several streams as they come, each with its stream's index.

    The first error ends all of them, and so does their time; closing the merged stream closes
    every part.
    """
    deadline = asyncio.get_running_loop().time() + seconds
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
            try:
                async with asyncio.timeout_at(deadline):
                    item = await items.get()
            except TimeoutError as error:
                message = f"not complete within {seconds:g} s (serve.request_seconds)"
                raise ApiError(504, message, code="timeout") from error
            if isinstance(item, Exception):
                raise item
            num_running -= item[1].result is not None
            yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
