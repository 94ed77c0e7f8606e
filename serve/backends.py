"""Where an endpoint's answers come from: a target in the replica itself, or a group of actors."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from ray.util import get_current_placement_group

from actors.batching import BatchingEngine
from actors.engine_stats import EngineStats
from actors.loading import cache_tokens, open_engine
from actors.target_group import TargetGroup
from actors.ticket import Delta
from decoders.request import Request
from serve.config import ServeConfig


class Backend(Protocol):
    """A target that takes requests at any time and streams their answers."""

    def stream(self, request: Request, stop: Sequence[str]) -> AsyncGenerator[Delta, None]: ...

    async def stats(self) -> EngineStats:
        """How the target's engine stands; raises when it does not answer."""
        ...

    def check(self) -> None:
        """Raise when this process must be replaced. Local and cheap: no call to the target."""
        ...

    def close(self) -> None:
        """Let the target go."""
        ...


class LocalBackend:
    """One rank with its drafter in this very process: no hop between endpoint and decode loop."""

    def __init__(self, config: ServeConfig) -> None:
        engine = open_engine(config.target, config.drafter, config.all_methods)
        tokens = cache_tokens(config.target, config.max_batch, config.max_cache_tokens)
        self.batching = BatchingEngine(engine, config.max_batch, tokens)

    def stream(self, request: Request, stop: Sequence[str]) -> AsyncGenerator[Delta, None]:
        return self.batching.stream(request, stop)

    async def stats(self) -> EngineStats:
        self.batching.check()
        return self.batching.stats()

    def check(self) -> None:
        self.batching.check()

    def close(self) -> None:
        self.batching.close()


class GroupBackend:
    """Several ranks, or a drafter apart from its target: a group that this process owns."""

    def __init__(self, config: ServeConfig) -> None:
        self._group = TargetGroup.start(
            config.target,
            config.drafter,
            config.all_methods,
            config.max_batch,
            config.max_cache_tokens,
            own_room=get_current_placement_group(),
        )

    def stream(self, request: Request, stop: Sequence[str]) -> AsyncGenerator[Delta, None]:
        return self._group.stream(request, stop)

    async def stats(self) -> EngineStats:
        facts = await asyncio.to_thread(self._group.facts)
        return EngineStats(**facts["stats"])

    def check(self) -> None:
        """Nothing here can break for good: the group heals by itself."""

    def close(self) -> None:
        self._group.stop()


def is_local(config: ServeConfig) -> bool:
    """Whether one process can hold the whole target and its drafter."""
    return config.target.tp == 1 and config.drafter.placement == "target"


def open_backend(config: ServeConfig) -> Backend:
    """The target of ``config``, loaded and ready."""
    return LocalBackend(config) if is_local(config) else GroupBackend(config)
