"""The texts of a request, in every form in which clients send them."""

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from models.text import whole_text
from serve.neutral import shown

MAX_STOPS = 16
"""OpenAI takes 4; evaluation harnesses send more."""

MOST_PROMPTS = 2048
"""Far more than an endpoint answers at once; a body has room for a million."""

Prompt = str | tuple[int, ...]

_TEXT: dict[str, Any] = {"type": "string"}
_IDS: dict[str, Any] = {"type": "array", "items": {"type": "integer"}}
_SEVERAL: dict[str, Any] = {"type": "array", "minItems": 1, "maxItems": MOST_PROMPTS}
_PROMPTS = WithJsonSchema(
    {"anyOf": [_TEXT, *(_SEVERAL | {"items": x} for x in (_TEXT, _IDS)), _IDS]}
)
_STOPS = WithJsonSchema(
    {
        "anyOf": [
            {"type": "string", "minLength": 1},
            {"type": "array", "maxItems": MAX_STOPS, "items": {"type": "string", "minLength": 1}},
            {"type": "null"},
        ]
    }
)
"""What these fields take, which the values that they become do not say."""


Text = Annotated[str, AfterValidator(whole_text)]


def read_stop(value: Any) -> Any:
    """``null``, one string or a list of them as a tuple."""
    words = () if value is None else (value,) if isinstance(value, str) else value
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise ValueError(f"must be a string or a list of strings, not {shown(value)}")
    if len(words) > MAX_STOPS or "" in words:
        told = f"takes at most {MAX_STOPS} strings, none of them empty; got {shown(value)}"
        raise ValueError(told)
    return tuple(map(whole_text, words))


def read_prompts(value: Any) -> Any:
    """A string, a list of strings, token ids or a list of token id lists, as a tuple of prompts."""
    if isinstance(value, str):
        return (whole_text(value),)
    if isinstance(value, list) and value:
        if _are_ids(value):
            return (tuple(value),)
        if len(value) > MOST_PROMPTS:
            raise ValueError(f"has {len(value)} prompts; valid: at most {MOST_PROMPTS}")
        if all(isinstance(prompt, str) for prompt in value):
            return tuple(map(whole_text, value))
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
                raise ValueError(f"only text parts are supported, not {shown(part)}")
            if not isinstance(part.get("text"), str):
                raise ValueError(f"a text part must have its text as a string, not {shown(part)}")
        value = "".join(part["text"] for part in value)
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {shown(value)}")
    return whole_text(value)


Stops = Annotated[tuple[str, ...], BeforeValidator(read_stop), _STOPS]
Prompts = Annotated[tuple[Prompt, ...], BeforeValidator(read_prompts), _PROMPTS]
Content = Annotated[str, BeforeValidator(read_content)]
