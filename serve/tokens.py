"""``POST /tokenize`` and ``/detokenize``: text to token ids and back, in vLLM's shapes."""

from typing import Annotated, Any

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field, model_validator

from serve.errors import ApiError
from serve.neutral import drop_neutral, few_fields, refuse
from serve.reading import read
from serve.schema import Messages, num_characters
from serve.service import Service
from serve.texts import Text

ADDED_ALWAYS = {"add_generation_prompt": (None, True), "continue_final_message": (None, False)}
ADDED_NEVER = {"add_special_tokens": (None, False)}
"""Plain text gets no tokens of its own here; a chat template brings what it needs."""


class TokenizeRequest(BaseModel):
    """Plain text in ``prompt``, or a conversation in ``messages``, as its answer would see it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    model: str | None = None
    prompt: Text | None = None
    messages: Messages | None = None
    return_token_strs: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _neutral(cls, values: Any) -> Any:
        return drop_neutral(values, ADDED_ALWAYS | ADDED_NEVER)

    @model_validator(mode="after")
    def _one_text(self) -> "TokenizeRequest":
        if (self.prompt is None) == (self.messages is None):
            raise refuse("prompt", self.prompt, "one of prompt and messages")
        return self

    @property
    def num_characters(self) -> int:
        return len(self.prompt or "") + num_characters(self.messages or ())


class DetokenizeRequest(BaseModel):
    """Token ids of this target."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    model: str | None = None
    tokens: Annotated[list[int], Field(fail_fast=True)]

    @model_validator(mode="before")
    @classmethod
    def _few(cls, values: Any) -> Any:
        return few_fields(values)


def tokenized(service: Service, body: TokenizeRequest) -> dict[str, Any]:
    """The answer to ``/tokenize``."""
    if body.messages is not None:
        ids = service.chat_ids(body.messages)
    else:
        ids = service.codec.encode(body.prompt or "")
    names = [service.codec.spell([token]) for token in ids] if body.return_token_strs else None
    return {
        "count": len(ids),
        "max_model_len": service.spec.max_positions,
        "tokens": ids,
        "token_strs": names,
    }


def add_token_routes(api: FastAPI, service: Service) -> None:
    """Let clients count tokens as the target does."""

    @api.post("/tokenize")
    async def tokenize(body: TokenizeRequest) -> dict[str, Any]:
        service.check_model(body.model)
        return await read(lambda: tokenized(service, body), body.num_characters)

    @api.post("/detokenize")
    async def detokenize(body: DetokenizeRequest) -> dict[str, str]:
        service.check_model(body.model)
        most = service.spec.vocab_size
        wrong = [token for token in body.tokens if not 0 <= token < most]
        if wrong:
            message = f"tokens: {wrong[0]} is not a token of this target; valid: 0 to {most - 1}"
            raise ApiError(400, message, param="tokens")
        text = await read(lambda: service.codec.spell(body.tokens), len(body.tokens))
        return {"prompt": text}
