"""Jobs answered in OpenAI's shapes: in one piece, or chunk by chunk."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from decoders.request import Result
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

Chunks = AsyncGenerator[Answer, None]


async def completion(service: Service, job: Job) -> Completion:
    """The whole answer to a text completion."""
    texts, results = await _collect(service, job)
    choices = [
        CompletionChoice(index=index, text=texts[index], finish_reason=result.stop_reason)
        for index, result in enumerate(results)
    ]
    return _completion(job, choices, results)


async def completion_chunks(service: Service, job: Job, include_usage: bool) -> Chunks:
    """Text as it settles; each choice's last chunk has the finish reason; usage at the end."""
    results: dict[int, Result] = {}
    logs = service.event_logs(job)
    async with aclosing(service.run(job)) as deltas:
        async for index, delta in deltas:
            events = logs[index].events(delta) if index in logs else None
            reason = None
            if delta.result is not None:
                results[index] = delta.result
                reason = delta.result.stop_reason
            if delta.text or reason or events:
                choice = CompletionChoice(
                    index=index, text=delta.text, finish_reason=reason, maskahead=events
                )
                yield _completion(job, [choice])
    if include_usage:
        yield _completion(job, [], list(results.values()))


async def chat(service: Service, job: Job) -> ChatCompletion:
    """The whole answer to a conversation."""
    texts, results = await _collect(service, job)
    choices = [
        ChatChoice(
            index=index,
            message=AssistantMessage(content=texts[index]),
            finish_reason=result.stop_reason,
        )
        for index, result in enumerate(results)
    ]
    usage = usage_of(job.num_prompt_tokens, results)
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
            if delta.text or events:
                yield _chat_part(job, index, {"content": delta.text}, events=events)
            if delta.result is not None:
                results[index] = delta.result
                yield _chat_part(job, index, {}, delta.result.stop_reason)
    if include_usage:
        usage = usage_of(job.num_prompt_tokens, list(results.values()))
        yield ChatChunk(id=job.id, created=job.created, model=job.model, choices=[], usage=usage)


async def _collect(service: Service, job: Job) -> tuple[list[str], list[Result]]:
    """Text and result of every choice, in order."""
    texts = [""] * len(job.requests)
    results: dict[int, Result] = {}
    async with aclosing(service.run(job)) as deltas:
        async for index, delta in deltas:
            texts[index] += delta.text
            if delta.result is not None:
                results[index] = delta.result
    return texts, [results[index] for index in range(len(texts))]


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
    events: Events | None = None,
) -> ChatChunk:
    choice = ChatPartChoice(index=index, delta=delta, finish_reason=reason, maskahead=events)
    return ChatChunk(id=job.id, created=job.created, model=job.model, choices=[choice])
