"""Answers in OpenAI's shapes. ``usage.maskahead`` is ours: clients keep unknown fields of usage."""

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, Field

from decoders.request import Result
from serve.events import Events, is_absent

FinishReason = Literal["stop", "length"]


class Effort(BaseModel):
    """What the answers cost, all choices together (counting as in contracts.md)."""

    nfe: int
    forwards: int
    tokens_per_forward: float
    accepted_per_round: list[float]
    """One number a choice."""
    seconds: float
    """Of the slowest choice, from joining the batch to its end."""


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    maskahead: Effort


def usage_of(num_prompt_tokens: int, results: Sequence[Result]) -> Usage:
    """Each prompt counts once, however many choices it has."""
    completed = sum(len(result.token_ids) for result in results)
    nfe = sum(result.nfe for result in results)
    commits = sum(result.commits for result in results)
    effort = Effort(
        nfe=nfe,
        forwards=sum(result.forwards for result in results),
        tokens_per_forward=round(commits / nfe, 4) if nfe else 0.0,
        accepted_per_round=[round(result.accepted_per_round, 4) for result in results],
        seconds=round(max(result.seconds for result in results), 6),
    )
    return Usage(
        prompt_tokens=num_prompt_tokens,
        completion_tokens=completed,
        total_tokens=num_prompt_tokens + completed,
        maskahead=effort,
    )


class CompletionChoice(BaseModel):
    index: int
    text: str
    logprobs: None = None
    finish_reason: FinishReason | None = None
    maskahead: Events | None = Field(default=None, exclude_if=is_absent)


class AssistantMessage(BaseModel):
    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class ChatChoice(BaseModel):
    index: int
    message: AssistantMessage
    logprobs: None = None
    finish_reason: FinishReason | None = None


class ChatPartChoice(BaseModel):
    index: int
    delta: dict[str, str]
    """``role`` once, with the first chunk; then ``content``; nothing with the finish reason."""
    logprobs: None = None
    finish_reason: FinishReason | None = None
    maskahead: Events | None = Field(default=None, exclude_if=is_absent)


class Answer(BaseModel):
    """The frame of every response and chunk."""

    id: str
    created: int
    model: str
    usage: Usage | None = None


class Completion(Answer):
    """Plain response and chunk of ``/v1/completions``."""

    object: Literal["text_completion"] = "text_completion"
    choices: list[CompletionChoice]


class ChatCompletion(Answer):
    object: Literal["chat.completion"] = "chat.completion"
    choices: list[ChatChoice]


class ChatChunk(Answer):
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    choices: list[ChatPartChoice]
