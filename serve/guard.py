"""What stands before the routes: keys, the size and pace of bodies, and each request's line.

Plain ASGI, so that nothing lies between a stream and the client that may leave it.
"""

import asyncio
import re
import uuid
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.errors import TOO_LARGE, ApiError, as_api_error
from serve.journal import Journal, Line
from serve.keys import Keyring, is_loopback
from serve.metrics import Metrics
from serve.operation import OperationConfig

OPEN_PATHS = ("/", "/healthz", "/readyz")
OPEN_BELOW = "/page/"
"""Answered without a key: they show nothing of what is asked here."""
QUIET_PATHS = ("/healthz", "/readyz", "/metrics")
"""Asked so often that their lines would hide the others."""
_REQUEST_ID = re.compile(r"[\w.-]{1,64}")


class Guard:
    """Lets requests through to ``app`` that have a key and keep to the limits."""

    def __init__(
        self,
        app: ASGIApp,
        operation: OperationConfig,
        keyring: Keyring,
        journal: Journal,
        metrics: Metrics,
    ) -> None:
        self.app = app
        self.operation = operation
        self.keyring = keyring
        self.journal = journal
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path, headers = scope["path"], Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        line = self.journal.open(request_id, scope["method"], path)
        watched = _Watched(send, request_id)
        try:
            refusal = self._refusal(path, headers, line)
            if refusal is not None:
                await refusal.response()(scope, receive, watched)
                return
            body = _Body(receive, self.operation.max_body_bytes, self.operation.body_seconds)
            await self.app(scope, body, watched)
        except Exception as error:  # no route expects it
            if watched.status:
                raise
            await as_api_error(error).response()(scope, receive, watched)
        finally:
            line["status"] = watched.status
            self.metrics.requested(route_of(scope), watched.status)
            if path not in QUIET_PATHS:
                self.journal.close(line)

    def _refusal(self, path: str, headers: Headers, line: Line) -> ApiError | None:
        host = headers.get("host", "")
        if not (self.keyring or self.operation.allow_no_keys or names_loopback(host)):
            # A web page whose name was made to point here sends its own name (DNS rebinding).
            return ApiError(
                403,
                f"without API keys only this machine is served, and host {host!r} is not its name; "
                "valid: localhost, a loopback address, or serve.allow_no_keys=true",
                code="host_not_allowed",
            )
        if self.keyring and path not in OPEN_PATHS and not path.startswith(OPEN_BELOW):
            owner = self.keyring.owner(shown_key(headers))
            if owner is None:
                return ApiError(
                    401,
                    "no valid API key: send it as Authorization: Bearer KEY",
                    code="invalid_api_key",
                    headers={"WWW-Authenticate": "Bearer"},
                )
            line["key"] = owner
        length, most = headers.get("content-length", "0"), self.operation.max_body_bytes
        if length.isdecimal() and int(length) > most:
            return too_large(most)
        return None


def shown_key(headers: Headers) -> str:
    """The key that a request carries; an empty one for none."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


def names_loopback(host: str) -> bool:
    """Whether a ``Host`` header names the machine itself; clients of HTTP/1.0 may send none."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    return not host or is_loopback(name.removesuffix("."))  # a full name may end in the root's dot


def route_of(scope: Scope) -> str:
    """The route's pattern, so that made-up paths are one."""
    route = scope.get("route")
    return getattr(route, "path", "unknown")


def too_large(most: int) -> ApiError:
    message = f"the body is larger than {most} bytes (serve.max_body_bytes)"
    return ApiError(413, message, code=TOO_LARGE)


class _Watched:
    """Passes a response on, with the request's id, and keeps its status."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._request_id = request_id
        self.status = 0
        """0: the client left before anything was answered."""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            MutableHeaders(scope=message)["x-request-id"] = self._request_id
        await self._send(message)


class _Body:
    """Passes a body on, up to its limits in size and time."""

    def __init__(self, receive: Receive, most: int, seconds: float) -> None:
        self._receive = receive
        self._most = most
        self._room = most
        self._deadline = asyncio.get_running_loop().time() + seconds
        self._seconds = seconds
        self._ended = False

    async def __call__(self) -> Message:
        if self._ended:  # what follows is the client leaving, whenever it does
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError as error:
            reason = f"the body did not arrive within {self._seconds:g} s (serve.body_seconds)"
            raise HTTPException(408, reason) from error
        if message["type"] != "http.request":
            self._ended = True
            return message
        self._ended = not message.get("more_body", False)
        self._room -= len(message.get("body", b""))
        if self._room < 0:
            raise HTTPException(413, too_large(self._most).message)
        return message
