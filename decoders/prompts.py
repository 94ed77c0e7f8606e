"""Prompt rows: checking them, and turning them into requests (contracts.md, ``decode``)."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from decoders.noise import row_seed
from decoders.options import DecodeOptions, Temperature
from decoders.request import Request
from models.text import TextCodec, whole_text


class PromptRow(BaseModel):
    """One row of a prompts file; keys beyond these are kept out of decoding."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str = Field(min_length=1)
    prompt: str | None = None
    prompt_ids: tuple[int, ...] | None = None
    seed: int | None = None
    max_new_tokens: int | None = Field(default=None, ge=0)
    temperature: Temperature | None = None

    @model_validator(mode="before")
    @classmethod
    def _integer_ids_are_names(cls, values: Any) -> Any:
        if isinstance(values, dict) and type(values.get("id")) is int:
            return values | {"id": str(values["id"])}
        return values

    @field_validator("prompt")
    @classmethod
    def _whole_text(cls, prompt: str | None) -> str | None:
        return None if prompt is None else whole_text(prompt)

    @model_validator(mode="after")
    def _one_prompt(self) -> "PromptRow":
        if (self.prompt is None) == (self.prompt_ids is None):
            raise ValueError("give exactly one of prompt and prompt_ids")
        return self


def build_request(row: PromptRow, options: DecodeOptions, codec: TextCodec | None) -> Request:
    """The request of one row: its own seed, limit and temperature win over the options'."""
    own = {"max_new_tokens": row.max_new_tokens, "temperature": row.temperature}
    changed = {key: value for key, value in own.items() if value is not None}
    if changed:
        options = options.model_copy(update=changed)
    if row.prompt_ids is not None:
        ids = row.prompt_ids
    elif codec is None:
        raise ValueError(f"prompt of {row.id}: this target has no tokenizer; give prompt_ids")
    else:
        try:
            ids = codec.encode_chat([{"role": "user", "content": row.prompt or ""}])
        except ValueError as error:
            raise ValueError(f"prompt of {row.id}: {error}") from error
    seed = row.seed if row.seed is not None else row_seed(options.seed, row.id)
    return Request(row.id, ids, options, seed)
