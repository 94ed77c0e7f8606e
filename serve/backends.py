"""Where an endpoint's answers come from."""

from collections.abc import AsyncGenerator, Sequence
from typing import Any, Protocol

from actors.batching import BatchingEngine, Delta
from decoders.engine import Engine
from decoders.request import Request


class Backend(Protocol):
    """A target that takes requests at any time and streams their answers."""

    def stream(self, request: Request, stop: Sequence[str]) -> AsyncGenerator[Delta, None]: ...

    async def facts(self) -> dict[str, Any]:
        """State of the target; raises when it does not answer."""
        ...

    def check(self) -> None:
        """Raise when this process must be replaced. Local and cheap: no call to the target."""
        ...


class LocalBackend:
    """The target in this very process: no hop between the endpoint and the decode loop."""

    def __init__(self, engine: Engine, max_batch: int) -> None:
        self.batching = BatchingEngine(engine, max_batch)

    def stream(self, request: Request, stop: Sequence[str]) -> AsyncGenerator[Delta, None]:
        return self.batching.stream(request, stop)

    async def facts(self) -> dict[str, Any]:
        self.batching.check()
        return {"running": self.batching.num_running, "waiting": self.batching.num_waiting}

    def check(self) -> None:
        self.batching.check()
