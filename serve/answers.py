"""Jobs answered in OpenAI's shapes: in one piece, or chunk by chunk."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from decoders.request import Result, TokenLogprob
from serve.events import Events
from serve.responses import (
    Answer,
    AssistantMessage,
    ChatChoice,
    ChatChunk,
    ChatCompletion,
    ChatPartChoice,
    Completion,
    CompletionChoice,
    FinishReason,
    usage_of,
)
from serve.service import Job, Service
from serve.spelling import ChatLogprobs, CompletionLogprobs, CompletionSpelling, chat_logprobs

Chunks = AsyncGenerator[Answer, None]


async def completion(service: Service, job: Job) -> Completion:
    """The whole answer to a text completion."""
    wholes = await _collect(service, job)
    choices = [
        CompletionChoice(
            index=index,
            text=whole.text,
            finish_reason=whole.result.stop_reason,
            logprobs=_completion_logprobs(CompletionSpelling(service.codec), job, whole.logprobs),
        )
        for index, whole in enumerate(wholes)
    ]
    return _completion(job, choices, [whole.result for whole in wholes])


async def completion_chunks(service: Service, job: Job, include_usage: bool) -> Chunks:
    """Text as it settles; each choice's last chunk has the finish reason; usage at the end."""
    results: dict[int, Result] = {}
    logs = service.event_logs(job)
    spellings = [CompletionSpelling(service.codec) for _ in job.requests]
    async with aclosing(service.run(job)) as deltas:
        async for index, delta in deltas:
            events = logs[index].events(delta) if index in logs else None
            reason = None
            if delta.result is not None:
                results[index] = delta.result
                reason = delta.result.stop_reason
            if delta.text or reason or delta.logprobs or events:
                choice = CompletionChoice(
                    index=index,
                    text=delta.text,
                    finish_reason=reason,
                    logprobs=_completion_logprobs(spellings[index], job, delta.logprobs),
                    maskahead=events,
                )
                yield _completion(job, [choice])
    if include_usage:
        yield _completion(job, [], _in_order(results))


async def chat(service: Service, job: Job) -> ChatCompletion:
    """The whole answer to a conversation."""
    wholes = await _collect(service, job)
    choices = [
        ChatChoice(
            index=index,
            message=AssistantMessage(content=whole.text),
            finish_reason=whole.result.stop_reason,
            logprobs=_chat_logprobs(service, job, whole.logprobs),
        )
        for index, whole in enumerate(wholes)
    ]
    usage = usage_of(job.num_prompt_tokens, [whole.result for whole in wholes])
    return ChatCompletion(
        id=job.id, created=job.created, model=job.model, choices=choices, usage=usage
    )


async def chat_chunks(service: Service, job: Job, include_usage: bool) -> Chunks:
    """A choice's role, then text as it settles, then the finish reason; usage at the end."""
    results: dict[int, Result] = {}
    begun: set[int] = set()
    logs = service.event_logs(job)
    async with aclosing(service.run(job)) as deltas:
        async for index, delta in deltas:
            if index not in begun:
                begun.add(index)
                yield _chat_part(job, index, {"role": "assistant", "content": ""})
            events = logs[index].events(delta) if index in logs else None
            if delta.text or delta.logprobs or events:
                logprobs = _chat_logprobs(service, job, delta.logprobs)
                content = {"content": delta.text}
                yield _chat_part(job, index, content, logprobs=logprobs, events=events)
            if delta.result is not None:
                results[index] = delta.result
                yield _chat_part(job, index, {}, delta.result.stop_reason)
    if include_usage:
        usage = usage_of(job.num_prompt_tokens, _in_order(results))
        yield ChatChunk(id=job.id, created=job.created, model=job.model, choices=[], usage=usage)


@dataclass(frozen=True)
class _Whole:
    """One choice, put together from its deltas."""

    result: Result
    text: str
    logprobs: list[TokenLogprob]


async def _collect(service: Service, job: Job) -> list[_Whole]:
    """Every choice, in order."""
    texts = [""] * len(job.requests)
    logprobs: list[list[TokenLogprob]] = [[] for _ in job.requests]
    results: dict[int, Result] = {}
    async with aclosing(service.run(job)) as deltas:
        async for index, delta in deltas:
            texts[index] += delta.text
            logprobs[index] += delta.logprobs
            if delta.result is not None:
                results[index] = delta.result
    parts = zip(texts, logprobs, strict=True)
    return [_Whole(results[index], *part) for index, part in enumerate(parts)]


def _in_order(results: Mapping[int, Result]) -> list[Result]:
    """By their choices' numbers, however they came."""
    return [results[index] for index in sorted(results)]


def _completion_logprobs(
    spelling: CompletionSpelling, job: Job, entries: Sequence[TokenLogprob]
) -> CompletionLogprobs | None:
    asked = job.requests[0].top_logprobs
    return None if asked is None else spelling.spell(entries, asked)


def _chat_logprobs(
    service: Service, job: Job, entries: Sequence[TokenLogprob]
) -> ChatLogprobs | None:
    asked = job.requests[0].top_logprobs
    return None if asked is None else chat_logprobs(service.codec, entries)


def _completion(
    job: Job, choices: list[CompletionChoice], results: list[Result] | None = None
) -> Completion:
    usage = usage_of(job.num_prompt_tokens, results) if results else None
    return Completion(id=job.id, created=job.created, model=job.model, choices=choices, usage=usage)


def _chat_part(
    job: Job,
    index: int,
    delta: dict[str, str],
    reason: FinishReason | None = None,
    logprobs: ChatLogprobs | None = None,
    events: Events | None = None,
) -> ChatChunk:
    choice = ChatPartChoice(
        index=index, delta=delta, finish_reason=reason, logprobs=logprobs, maskahead=events
    )
    return ChatChunk(id=job.id, created=job.created, model=job.model, choices=[choice])
