"""What the tests of streamed answers share: a target that is watched, and ways to read streams."""

import asyncio
import time
from collections.abc import Callable, Sequence

from torch import Tensor

from actors.batching import BatchingEngine
from actors.ticket import Delta
from decoders.options import DecodeOptions
from decoders.request import Request, Result
from models.target import CopyBatch, Target

LONG = DecodeOptions(max_new_tokens=100, ignore_stop=True)


class WatchedTarget(Target):
    """Counts its forwards, and fails those that a test wants to fail."""

    num_forwards = 0
    fails = fails_next = holds = False
    failure: Exception = RuntimeError("out of memory")

    def forward(self, batch: CopyBatch) -> Tensor:
        self.num_forwards += 1
        if self.fails or self.fails_next:
            self.fails_next = False
            raise self.failure
        return super().forward(batch)

    def close_slot(self, slot: int) -> None:
        if self.holds:
            raise self.failure
        super().close_slot(slot)


async def collect(
    batching: BatchingEngine, request: Request, stop: Sequence[str] = ()
) -> list[Delta]:
    return [delta async for delta in batching.stream(request, stop)]


def alone(batching: BatchingEngine, request: Request) -> Result:
    """The request decoded offline, by itself."""
    with batching.exclusive() as engine:
        return next(engine.decode([request]))


def text_of(deltas: Sequence[Delta]) -> str:
    return "".join(delta.text for delta in deltas)


def ids_of(deltas: Sequence[Delta]) -> tuple[int, ...]:
    return tuple(token for delta in deltas for token in delta.token_ids)


async def until(condition: Callable[[], bool]) -> None:
    """Wait (the engine's thread goes on meanwhile), a minute at most."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.002)
