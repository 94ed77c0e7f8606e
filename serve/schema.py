"""Requests as OpenAI's clients send them, checked once and turned into plain values.

Fields that have no support here are the concern of ``serve.neutral``.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from decoders.options import Temperature
from decoders.request import MOST_ALTERNATIVES
from serve.neutral import CHAT, COMPLETION, MESSAGE, drop_neutral, few_fields, refuse
from serve.texts import Content, Prompts, Stops, Text

MAX_CHOICES = 128
MOST_MESSAGES = 8192
"""Beyond any conversation; a body has room for a hundred thousand."""
FRAME_CHARACTERS = 32
"""What a template writes around a message, about."""


class StreamOptions(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    include_usage: bool | None = None
    include_obfuscation: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _few(cls, values: Any) -> Any:
        return few_fields(values)


class GenerationRequest(BaseModel):
    """What completions and chat have in common. ``None`` stands for the endpoint's default."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    model: str
    max_tokens: int | None = Field(default=None, ge=0)
    n: int | None = Field(default=None, ge=1, le=MAX_CHOICES)
    seed: int | None = None
    stop: Stops = ()
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Temperature | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    maskahead: dict[str, Any] | None = None
    """Decoding options of this request, any of ``serve.options.EXTENSION``; and ``events``, a flag
    for streams."""

    @model_validator(mode="after")
    def _stream_options_need_a_stream(self) -> "GenerationRequest":
        if self.stream_options is not None and not self.stream:
            raise refuse("stream_options", self.stream_options.model_dump(), "null without stream")
        return self

    @model_validator(mode="after")
    def _events_need_a_stream(self) -> "GenerationRequest":
        events = (self.maskahead or {}).get("events")
        if events is not None and (type(events) is not bool or (events and not self.stream)):
            raise refuse("maskahead.events", events, "true with stream, or false")
        return self

    @property
    def watched(self) -> bool:
        """Whether the stream carries the rounds, too."""
        return bool((self.maskahead or {}).get("events"))

    @property
    def num_choices(self) -> int:
        """Answers for each prompt."""
        return self.n or 1

    @property
    def num_answers(self) -> int:
        """Answers to all prompts."""
        return self.num_choices

    @property
    def limit_field(self) -> str:
        """The field that says :attr:`limit`."""
        return "max_tokens"

    @property
    def limit(self) -> int | None:
        """Most tokens of an answer."""
        return getattr(self, self.limit_field)

    @property
    def top_logprobs_asked(self) -> int | None:
        """Alternatives to tell with each token's log-probability; ``None``: tell none."""
        return None

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a usage chunk."""
        return bool(self.stream_options and self.stream_options.include_usage)


class CompletionRequest(GenerationRequest):
    """``POST /v1/completions``."""

    prompt: Prompts
    logprobs: int | None = Field(default=None, ge=0, le=MOST_ALTERNATIVES)

    @property
    def num_answers(self) -> int:
        return len(self.prompt) * self.num_choices

    @property
    def num_characters(self) -> int:
        return sum(len(prompt) for prompt in self.prompt)

    @property
    def top_logprobs_asked(self) -> int | None:
        return self.logprobs

    @model_validator(mode="before")
    @classmethod
    def _neutral(cls, values: Any) -> Any:
        return drop_neutral(values, COMPLETION)


class Message(BaseModel):
    """One turn of a conversation."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    role: Literal["system", "developer", "user", "assistant"]
    content: Content
    name: Text | None = None

    @model_validator(mode="before")
    @classmethod
    def _neutral(cls, values: Any) -> Any:
        return drop_neutral(values, MESSAGE)

    def for_template(self) -> dict[str, str]:
        """The keys that chat templates read; ``developer`` is the newer name of ``system``."""
        role = "system" if self.role == "developer" else self.role
        named = {} if self.name is None else {"name": self.name}
        return {"role": role, "content": self.content} | named


Messages = Annotated[list[Message], Field(min_length=1, max_length=MOST_MESSAGES, fail_fast=True)]
"""A conversation. One wrong message is told: a body has room for millions, and errors of all of
them would take gigabytes."""


def num_characters(messages: Sequence[Message]) -> int:
    """About how long a conversation is under its template: empty messages are text, too."""
    said = (len(message.content) + len(message.name or "") for message in messages)
    return FRAME_CHARACTERS * len(messages) + sum(said)


class ChatRequest(GenerationRequest):
    """``POST /v1/chat/completions``."""

    messages: Messages
    max_completion_tokens: int | None = Field(default=None, ge=0)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=MOST_ALTERNATIVES)

    @model_validator(mode="before")
    @classmethod
    def _neutral(cls, values: Any) -> Any:
        return drop_neutral(values, CHAT)

    @model_validator(mode="after")
    def _one_limit(self) -> "ChatRequest":
        both = (self.max_tokens, self.max_completion_tokens)
        if None not in both and both[0] != both[1]:
            raise refuse("max_completion_tokens", both[1], f"{both[0]}, which max_tokens says")
        return self

    @model_validator(mode="after")
    def _alternatives_need_logprobs(self) -> "ChatRequest":
        if self.top_logprobs and not self.logprobs:
            raise refuse("top_logprobs", self.top_logprobs, "null or 0 without logprobs: true")
        return self

    @property
    def num_characters(self) -> int:
        return num_characters(self.messages)

    @property
    def top_logprobs_asked(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None

    @property
    def limit_field(self) -> str:
        return "max_tokens" if self.max_completion_tokens is None else "max_completion_tokens"
