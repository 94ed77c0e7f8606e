"""What the endpoint does, apart from HTTP: API requests in, streams of deltas out."""

import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jinja2

from cluster.configuration import RUNS
from decoders.options import DecodeOptions
from decoders.refusals import check_options, check_tokens
from decoders.request import Request
from models.spec import TargetSpec
from models.text import TextCodec
from serve.account import Account
from serve.backends import Backend
from serve.config import ServeConfig
from serve.errors import RETRY_AFTER, ApiError
from serve.events import EventLog
from serve.journal import note
from serve.merging import Deltas, merge, until_complete
from serve.metrics import Metrics
from serve.moves import ServedSettings, check_in_place
from serve.options import check_budget, check_drafter, choice_seed, decode_options
from serve.schema import ChatRequest, CompletionRequest, GenerationRequest, Message
from serve.texts import Prompt

if TYPE_CHECKING:
    from serve.sampling import Sampler

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
        self.refused: str | None = None
        """Why the latest settings were not taken over; ``None`` where they were."""
        self.num_answers = 0
        """Answers in the batch and waiting."""

    async def warm_up(self) -> None:
        """Write a block by the served options before anybody is answered, since first forwards take
        longer than others; and a token by ``budget: auto``, which any request may ask for: it
        measures what forwards cost, for seconds where no earlier process of this machine has, and
        the whole batch would wait."""
        own = {"max_new_tokens": self.spec.block_size, "ignore_stop": True}
        served = self.config.decode.model_copy(update=own)
        auto = DecodeOptions(method="chain", budget="auto", max_new_tokens=1)
        for options in (served, auto):
            request = Request("warm-up", self.codec.encode(WARM_UP_PROMPT), options)
            async with aclosing(self.backend.stream(request, ())) as deltas:
                async for _ in deltas:
                    pass

    def apply(self, settings: ServedSettings) -> None:
        """Serve other options on the same target from the next request on; what is under way keeps
        its own. Raises ``ValueError`` for options that need another drafter or target."""
        wanted = settings.applied_to(self.config)
        check_in_place(self.opened, wanted, self.spec)
        self.config, self.draining, self.refused = wanted, settings.draining, None
        self.metrics.served(wanted)

    def completion_job(self, body: CompletionRequest) -> Job:
        """The job of a text completion: prompts as they are, no template."""
        return self._job("cmpl", "prompt", body, map(self._ids, body.prompt))

    def chat_job(self, body: ChatRequest) -> Job:
        """The job of a conversation under the target's chat template."""
        return self._job("chatcmpl", "messages", body, map(self.chat_ids, [body.messages]))

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
        held = len(job.requests)
        self._claim(held)

        def free() -> None:
            nonlocal held
            held -= 1
            self.num_answers -= 1

        account = Account(job.requests)
        try:
            streams = [self.backend.stream(request, job.stop) for request in job.requests]
            streams = [until_complete(stream, free) for stream in streams]
            async with aclosing(merge(streams, self.config.serve.request_seconds)) as deltas:
                async for index, delta in deltas:
                    account.see(index, delta)
                    yield index, delta
            account.ending = "finished"
        except Exception as error:
            account.ending, account.error = "failed", type(error).__name__
            raise
        finally:
            self.num_answers -= held
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

    def _job(
        self, kind: str, field: str, body: GenerationRequest, prompts: Iterable[tuple[int, ...]]
    ) -> Job:
        """``prompts``, which are what ``field`` holds, are looked at once all else is in order: a
        body may hold very many."""
        self.check_model(body.model)
        self._check_number(body.num_answers)
        job_id = f"{kind}-{uuid.uuid4().hex}"
        requests: list[Request] = []
        num_prompt_tokens = 0
        for ids in prompts:
            num_prompt_tokens += len(ids)
            options = self._options(ids, field, body)
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
        created = int(time.time())
        return Job(job_id, created, body.model, tuple(requests), body.stop, num_prompt_tokens)

    def _options(self, ids: Sequence[int], field: str, body: GenerationRequest) -> DecodeOptions:
        """The options of the answers to one prompt, once prompt and options are ones for this
        target."""
        operation, positions = self.config.serve, self.spec.max_positions
        most = min(positions, operation.max_prompt_tokens or positions)
        if len(ids) > most:
            message = f"{field}: the prompt has {len(ids)} tokens; this endpoint takes {most}"
            raise ApiError(400, message, param=field, code="context_length_exceeded")
        room = positions - len(ids)
        options = decode_options(
            self.config.decode, body, min(room, operation.max_answer_tokens or room)
        )
        check_budget(options, self.config)
        with refusing(field):
            check_tokens(ids, self.spec, field)
        with refusing("maskahead"):
            check_options(options, self.spec)
        check_drafter(options, self.opened)
        return options

    def _check_number(self, num_answers: int) -> None:
        most = self.config.max_answers
        if num_answers > most:
            message = f"{num_answers} answers in one request; this endpoint takes {most}"
            raise ApiError(400, message, param="n")

    def _claim(self, num_answers: int) -> None:
        most = self.config.max_answers
        if self.draining:
            message = "this endpoint is ending, and finishes only what is under way"
            raise ApiError(503, message, code="draining", headers=RETRY_AFTER)
        if self.num_answers + num_answers > most:
            message = f"{self.num_answers} answers are under way, of at most {most}: try again"
            raise ApiError(503, message, code="overloaded", headers=RETRY_AFTER)
        self.num_answers += num_answers


@contextmanager
def refusing(field: str) -> Iterator[None]:
    """A ``ValueError`` of the block is about what the request's ``field`` says."""
    try:
        yield
    except ValueError as error:
        raise ApiError(400, str(error), param=field) from error


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
