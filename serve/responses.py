"""Answers in OpenAI's shapes. ``usage.maskahead`` is ours: clients keep unknown fields of usage."""

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, Field

from decoders.options import takes
from decoders.request import Result
from serve.events import Events, is_absent
from serve.spelling import ChatLogprobs, CompletionLogprobs

FinishReason = Literal["stop", "length"]


class Effort(BaseModel):
    """How the answers were decoded and what they cost, all choices together (counting as in
    contracts.md)."""

    method: str
    budget: int | str | None
    """Most drafts of a forward; ``None`` of a method that has no such option."""
    promise: Literal["exact", "approximate"]
    """``exact``: token by token what the target writes by the same rule without drafts."""
    nfe: int
    forwards: int
    tokens_per_forward: float
    drafts: int
    """Copies verified beside the text's own."""
    accepted: int
    """Those of them that the target came to."""
    accepted_per_round: list[float]
    """One number a choice."""
    cached_prompt_tokens: int
    """Whose keys and values were kept of earlier requests."""
    seconds: float
    """Of the slowest choice, from joining the batch to its end."""


class PromptTokensDetails(BaseModel):
    cached_tokens: int
    """Tokens of prompts that none of their choices computed. (``maskahead.cached_prompt_tokens``
    are those of every choice.)"""


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    maskahead: Effort


def usage_of(num_prompt_tokens: int, results: Sequence[Result]) -> Usage:
    """Each prompt counts once, however many choices it has."""
    completed = sum(len(result.token_ids) for result in results)
    nfe = sum(result.nfe for result in results)
    commits = sum(result.commits for result in results)
    options = results[0].request.options
    rounds = [round for result in results for round in result.rounds]
    effort = Effort(
        method=options.method,
        budget=options.budget if takes(options.method, "budget") else None,
        promise="exact" if options.promises_equality else "approximate",
        nfe=nfe,
        forwards=sum(result.forwards for result in results),
        tokens_per_forward=round(commits / nfe, 4) if nfe else 0.0,
        drafts=sum(round.drafts for round in rounds),
        accepted=sum(round.accepted for round in rounds),
        accepted_per_round=[round(result.accepted_per_round, 4) for result in results],
        cached_prompt_tokens=sum(result.cache_hits for result in results),
        seconds=round(max(result.seconds for result in results), 6),
    )
    return Usage(
        prompt_tokens=num_prompt_tokens,
        completion_tokens=completed,
        total_tokens=num_prompt_tokens + completed,
        prompt_tokens_details=PromptTokensDetails(cached_tokens=_cached_tokens(results)),
        maskahead=effort,
    )


def _cached_tokens(results: Sequence[Result]) -> int:
    least: dict[tuple[int, ...], int] = {}
    for result in results:
        ids = result.request.prompt_ids
        least[ids] = min(result.cache_hits, least.get(ids, result.cache_hits))
    return sum(least.values())


class CompletionChoice(BaseModel):
    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: FinishReason | None = None
    maskahead: Events | None = Field(default=None, exclude_if=is_absent)


class AssistantMessage(BaseModel):
    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class ChatChoice(BaseModel):
    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None = None
    finish_reason: FinishReason | None = None


class ChatPartChoice(BaseModel):
    index: int
    delta: dict[str, str]
    """``role`` once, with the first chunk; then ``content``; nothing with the finish reason."""
    logprobs: ChatLogprobs | None = None
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
