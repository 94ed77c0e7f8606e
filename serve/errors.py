"""OpenAI-shaped errors: ``{"error": {"message", "type", "param", "code"}}`` for everything."""

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel
from ray.exceptions import RayActorError, RayError
from starlette.exceptions import HTTPException

from actors.batching import EngineClosed
from actors.target_rank import GroupError


class ErrorFacts(BaseModel):
    message: str
    type: Literal["invalid_request_error", "server_error"]
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """What every refusal and failure is told in."""

    error: ErrorFacts


DOCUMENTED: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ErrorBody, "description": "The request is refused"},
    "5XX": {"model": ErrorBody, "description": "The endpoint cannot answer (now)"},
}
"""For the OpenAPI description of every route."""

log = logging.getLogger("ray.serve")

RETRY_AFTER = {"Retry-After": "1"}
TOO_LARGE = "body_too_large"
CODES = {404: "not_found", 405: "method_not_allowed", 408: "body_too_slow", 413: TOO_LARGE}
"""What errors are called that were raised as HTTP's own."""
PASSING = (EngineClosed, GroupError, RayActorError)
"""Failures of a target that is replaced or rebuilt meanwhile."""


class ApiError(Exception):
    """A refusal that the client can read."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = headers

    def body(self) -> dict[str, dict[str, str | None]]:
        """The JSON body (also the data of an error event)."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": error}

    def response(self) -> Response:
        # In ASCII: what a client sent, and an error repeats, need not be text that can be encoded.
        text = json.dumps(self.body())
        return Response(text, self.status, self.headers, media_type="application/json")


def invalid(problems: Sequence[Mapping[str, Any]], prefix: str = "") -> ApiError:
    """The first of pydantic's ``problems`` as a refusal that names the field."""
    problem = problems[0]
    # FastAPI puts "body" first; a number first is a character offset in broken JSON.
    path = [str(part) for part in problem["loc"] if part != "body"]
    param = problem.get("ctx", {}).get("param") or ".".join([*filter(None, [prefix]), *path])
    if problem["type"] == "json_invalid":
        return ApiError(400, f"the body is not JSON: {problem['ctx']['error']}", code="bad_json")
    if problem["type"] == "extra_forbidden":
        return ApiError(400, f"unknown field: {param}", param=param, code="unknown_parameter")
    if param:
        message = f"{param}: {problem['msg'].removeprefix('Value error, ')}"
    else:  # the body as a whole: none, an array, or what its header does not call JSON
        message = "the body must be a JSON object, sent as Content-Type: application/json"
    code = "missing_parameter" if problem["type"] == "missing" else None
    return ApiError(400, message, param=param or None, code=code)


def as_api_error(error: Exception) -> ApiError:
    """What a client is told about ``error``; anything unexpected is logged in full here."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, PASSING):
        message = f"the target is restarting ({type(error).__name__}): try again"
        return ApiError(503, message, code="unavailable", headers=RETRY_AFTER)
    if isinstance(error, ValueError):
        return ApiError(400, str(error))
    log.error("a request failed", exc_info=error)
    return ApiError(500, f"{type(error).__name__}: {error}", code="internal_error")


def install_handlers(api: FastAPI) -> None:
    """Shape the errors of ``api`` that are expected: validation, unknown routes and methods,
    refusals, a target that fails. Any other one is shaped by ``serve.guard``."""

    async def on_validation(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return invalid(error.errors()).response()

    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        message = f"{request.method} {request.url.path}: {error.detail}"
        code = CODES.get(error.status_code)
        return ApiError(error.status_code, message, code=code, headers=error.headers).response()

    async def on_error(request: Request, error: Exception) -> Response:
        return as_api_error(error).response()

    api.add_exception_handler(RequestValidationError, on_validation)
    api.add_exception_handler(HTTPException, on_http)
    for kind in (ApiError, ValueError, RuntimeError, RayError):
        api.add_exception_handler(kind, on_error)
