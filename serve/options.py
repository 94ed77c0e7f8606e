"""From a checked API request to what the decoder takes."""

import secrets
from typing import Any

from pydantic import ValidationError

from decoders.noise import row_seed
from decoders.options import DRAFT_FREE, OPTIONS_OF, DecodeOptions, takes
from decoders.proposers.registry import UNTRAINED
from serve.config import ServeConfig
from serve.errors import ApiError, invalid
from serve.schema import GenerationRequest

EXTENSION = (
    "method",
    "budget",
    "gamma",
    "hedge",
    "width",
    "prune",
    "cap",
    "order",
    "rest",
    "verify",
    "tau",
    "rule",
    "edit_tau",
    "edit_passes",
    "confidence",
    "top_k",
    "ignore_stop",
)
"""What ``maskahead: {...}`` in a request may set, for this request alone."""
EVENTS = "events"
"""Beside them: whether a stream carries what happens in every round."""


def request_options(opened: ServeConfig) -> dict[str, list[str]]:
    """The methods that a request may ask for, the endpoint's own first, each with the options it
    takes: those whose drafters were loaded when it was ``opened``, and those that need none."""
    loaded = (opened.decode.method, *opened.methods, *DRAFT_FREE, *UNTRAINED)
    methods = dict.fromkeys(loaded)
    return {
        method: [name for name in EXTENSION if name in OPTIONS_OF[method]] for method in methods
    }


def decode_options(served: DecodeOptions, request: GenerationRequest, room: int) -> DecodeOptions:
    """The options of one request: its own win over the served ones.

    Served options that another method does not know fall away; the client's own must fit the
    method. An answer may have at most ``room`` tokens: that bounds the served limit, while a
    client's limit beyond it is refused.
    """
    own = _extension(request) | _sampling(request)
    limit = min(served.max_new_tokens, room) if request.limit is None else request.limit
    if limit > room:
        field = request.limit_field
        message = f"{field} {limit}: an answer to this prompt may have {room} tokens"
        raise ApiError(400, message, param=field, code="context_length_exceeded")
    own["max_new_tokens"] = limit
    method = str(own.get("method", served.method))
    base = {k: value for k, value in served.model_dump().items() if takes(method, k, value)}
    try:
        return DecodeOptions.model_validate(base | own)
    except ValidationError as error:
        raise invalid(error.errors(), prefix="maskahead") from error


def check_drafter(options: DecodeOptions, opened: ServeConfig) -> None:
    """Refuse a method whose drafter was not loaded when the endpoint was ``opened``."""
    loaded = request_options(opened)
    if options.drafts and options.method not in loaded:
        message = (
            f"maskahead.method {options.method}: its drafter is not loaded here; valid: "
            f"{', '.join(loaded)} (an endpoint loads what `methods` of its configuration lists)"
        )
        raise ApiError(400, message, param="maskahead.method")


def check_budget(options: DecodeOptions, config: ServeConfig) -> None:
    """Refuse more drafts than a request may ask for (``serve.max_budget``)."""
    own, most, served = options.budget, config.serve.max_budget, config.decode.budget
    if isinstance(own, int) and takes(options.method, "budget") and own > most and own != served:
        message = f"maskahead.budget {own}: this endpoint drafts at most {most} a round, or auto"
        raise ApiError(400, message, param="maskahead.budget")


def _extension(request: GenerationRequest) -> dict[str, Any]:
    own = {key: value for key, value in (request.maskahead or {}).items() if key != EVENTS}
    unknown = sorted(own.keys() - {*EXTENSION})
    if unknown:
        field = f"maskahead.{unknown[0]}"
        valid = ", ".join((*EXTENSION, EVENTS))
        raise ApiError(
            400, f"unknown field: {field}; valid: {valid}", param=field, code="unknown_parameter"
        )
    return own


def _sampling(request: GenerationRequest) -> dict[str, Any]:
    given = {"temperature": request.temperature, "top_p": request.top_p}
    return {key: value for key, value in given.items() if value is not None}


def choice_seed(seed: int | None, number: int) -> int:
    """The noise seed of a prompt's ``number``-th choice: the client's own for the first one,
    derived from it for the others; without one, fresh for every choice."""
    if seed is None:
        return secrets.randbits(64)
    return seed if number == 0 else row_seed(seed, str(number))
