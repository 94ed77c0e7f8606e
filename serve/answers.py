"""Jobs answered in OpenAI's shapes: in one piece, or chunk by chunk."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from decoders.request import Result
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
    Usage,
    usage_of,
)
from serve.service import Job, Service

Chunks = AsyncGenerator[Answer, None]
Piece = Callable[[int, str | None, FinishReason | None], Answer]
"""A chunk of choice ``index``: new text, the finish reason, or (neither) the beginning."""


async def completion(service: Service, job: Job) -> Completion:
    """The whole answer to a text completion."""
    texts, results = await _collect(service, job)
    choices = [
        CompletionChoice(index=i, text=text, finish_reason=result.stop_reason)
        for i, (text, result) in enumerate(zip(texts, results, strict=True))
    ]
    frame = _frame(service, job)
    return Completion(**frame, choices=choices, usage=usage_of(job.num_prompt_tokens, results))


async def chat(service: Service, job: Job) -> ChatCompletion:
    """The whole answer to a conversation."""
    texts, results = await _collect(service, job)
    choices = [
        ChatChoice(
            index=i, message=AssistantMessage(content=text), finish_reason=result.stop_reason
        )
        for i, (text, result) in enumerate(zip(texts, results, strict=True))
    ]
    frame = _frame(service, job)
    return ChatCompletion(**frame, choices=choices, usage=usage_of(job.num_prompt_tokens, results))
