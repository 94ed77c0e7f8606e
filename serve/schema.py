"""Requests as OpenAI's clients send them, checked once and turned into plain values.

Fields that have no support here are the concern of ``serve.neutral``.
"""

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)

from decoders.request import MOST_ALTERNATIVES
from serve.neutral import CHAT, COMPLETION, MESSAGE, drop_neutral, refuse

MAX_CHOICES = 128
MAX_STOPS = 16
"""OpenAI takes 4; evaluation harnesses send more."""

Prompt = str | tuple[int, ...]

_TEXT: dict[str, Any] = {"type": "string"}
_IDS: dict[str, Any] = {"type": "array", "items": {"type": "integer"}}
PROMPT_SCHEMA = WithJsonSchema(
    {"anyOf": [_TEXT, *({"type": "array", "minItems": 1, "items": x} for x in (_TEXT, _IDS)), _IDS]}
)
STOP_SCHEMA = WithJsonSchema(
    {
        "anyOf": [
            {"type": "string", "minLength": 1},
            {"type": "array", "maxItems": MAX_STOPS, "items": {"type": "string", "minLength": 1}},
            {"type": "null"},
        ]
    }
)
"""What these fields take, which the values that they become do not say."""


def read_stop(value: Any) -> Any:
    """``null``, one string or a list of them as a tuple."""
    words = () if value is None else (value,) if isinstance(value, str) else value
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise ValueError(f"must be a string or a list of strings, not {value!r}")
    if len(words) > MAX_STOPS or "" in words:
        raise ValueError(f"takes at most {MAX_STOPS} strings, none of them empty; got {value!r}")
    return tuple(words)


def read_prompts(value: Any) -> Any:
    """A string, a list of strings, token ids or a list of token id lists, as a tuple of prompts."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and value:
        if _are_ids(value):
            return (tuple(value),)
        if all(isinstance(prompt, str) for prompt in value):
            return tuple(value)
        if all(isinstance(prompt, list) and _are_ids(prompt) for prompt in value):
            return tuple(tuple(prompt) for prompt in value)
    raise ValueError(
        "must be a string, a list of strings, a list of token ids, or a list of such lists"
    )


def _are_ids(values: list[Any]) -> bool:
    return all(type(value) is int for value in values)


def read_content(value: Any) -> Any:
    """Text of a message, also when it comes as text parts."""
    if isinstance(value, list):
        for part in value:
            if not isinstance(part, dict) or part.get("type") != "text":
                raise ValueError(f"only text parts are supported, not {part!r}")
        value = "".join(str(part.get("text", "")) for part in value)
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {value!r}")
    return value


class StreamOptions(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class GenerationRequest(BaseModel):
    """What completions and chat have in common. ``None`` stands for the endpoint's default."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    model: str
    max_tokens: int | None = Field(default=None, ge=0)
    n: int | None = Field(default=None, ge=1, le=MAX_CHOICES)
    seed: int | None = None
    stop: Annotated[tuple[str, ...], BeforeValidator(read_stop), STOP_SCHEMA] = ()
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = Field(default=None, ge=0, le=2)
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
    def limit(self) -> int | None:
        """Most tokens of an answer."""
        return self.max_tokens

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

    prompt: Annotated[tuple[Prompt, ...], BeforeValidator(read_prompts), PROMPT_SCHEMA]
    logprobs: int | None = Field(default=None, ge=0, le=MOST_ALTERNATIVES)

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
    content: Annotated[str, BeforeValidator(read_content)]
    name: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _neutral(cls, values: Any) -> Any:
        return drop_neutral(values, MESSAGE)

    def for_template(self) -> dict[str, str]:
        """The keys that chat templates read; ``developer`` is the newer name of ``system``."""
        role = "system" if self.role == "developer" else self.role
        named = {} if self.name is None else {"name": self.name}
        return {"role": role, "content": self.content} | named


class ChatRequest(GenerationRequest):
    """``POST /v1/chat/completions``."""

    messages: list[Message] = Field(min_length=1)
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
    def top_logprobs_asked(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None

    @property
    def limit(self) -> int | None:
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens
