"""Fields of OpenAI's requests without support here: taken in their neutral value, else refused."""

import json
from collections.abc import Mapping
from itertools import islice
from typing import Any

from pydantic_core import PydanticCustomError

Neutral = Mapping[str, tuple[Any, ...]]
"""Fields, and the values at which they change nothing."""

MOST_SHOWN = 200
"""Characters of a refused value that its error repeats."""
MOST_FIELDS = 100
"""Fields of an object that are looked at. Each unknown one is an error of its own, of which one is
told, and a body has room for hundreds of thousands: seconds of the event loop."""

LABELS = (
    "metadata",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "user",
)
"""Fields that never change an answer, whatever their value."""

SHARED: Neutral = {
    "frequency_penalty": (None, 0),
    "logit_bias": (None, {}),
    "presence_penalty": (None, 0),
    # vLLM's own: its clients write some of them out (`vllm bench serve` a repetition_penalty of 1).
    "ignore_eos": (None, False),
    "include_stop_str_in_output": (None, False),
    "length_penalty": (None, 1),
    "min_p": (None, 0),
    "min_tokens": (None, 0),
    "repetition_penalty": (None, 1),
    "skip_special_tokens": (None, True),
    "spaces_between_special_tokens": (None, True),
    "stop_token_ids": (None, []),
    "top_k": (None, 0, -1),
    "use_beam_search": (None, False),
}
COMPLETION: Neutral = {
    **SHARED,
    "best_of": (None, 1),
    "echo": (None, False),
    "suffix": (None, ""),
}
CHAT: Neutral = {
    **SHARED,
    "audio": (None,),
    "function_call": (None, "none", "auto"),
    "functions": (None, []),
    "modalities": (None, ["text"]),
    "moderation": (None,),
    "parallel_tool_calls": (None, True, False),
    "prediction": (None,),
    "prompt_cache_options": (None,),
    "reasoning_effort": (None, "none"),
    "response_format": (None, {"type": "text"}),
    "service_tier": (None, "auto", "default"),
    "store": (None, False),
    "tool_choice": (None, "none", "auto"),
    "tools": (None, []),
    "verbosity": (None, "medium"),
    "web_search_options": (None,),
}
# An answer's message may come back as the next request's history.
MESSAGE: Neutral = {
    **dict.fromkeys(("annotations", "audio", "function_call", "refusal", "tool_calls"), (None, [])),
    "type": (None, "text"),  # lm-evaluation-harness before 0.4.12 says it of every message
}


def refuse(field: str, value: object, valid: str) -> PydanticCustomError:
    """The error of an unsupported value of ``field``."""
    message = "{value} is not supported; valid: {valid}"
    context = {"param": field, "value": shown(value), "valid": valid}
    return PydanticCustomError("unsupported_value", message, context)


def shown(value: object) -> str:
    """What a client sent, as its error repeats it: of a picture, say, not the whole."""
    text = json.dumps(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]} ..."


def few_fields(values: Any) -> Any:
    """The ``values``; raises for an object with more fields than any request has."""
    if isinstance(values, dict) and len(values) > MOST_FIELDS:
        message = "field {place} of {number}; valid: at most {most} in an object"
        context = {"place": MOST_FIELDS + 1, "number": len(values), "most": MOST_FIELDS}
        first = next(islice(values, MOST_FIELDS, None)).encode("ascii", "backslashreplace").decode()
        raise PydanticCustomError("too_many_fields", message, {"param": first, **context})
    return values


def drop_neutral(values: Any, neutral: Neutral) -> Any:
    """A request's ``values`` without labels and neutral fields; raises for one that is not."""
    if not isinstance(few_fields(values), dict):
        return values
    for name in neutral.keys() & values.keys():
        if values[name] not in neutral[name]:
            raise refuse(name, values[name], " or ".join(map(json.dumps, neutral[name])))
    return {k: v for k, v in values.items() if k not in neutral and k not in LABELS}
