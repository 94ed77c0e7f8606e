"""The streams of one job's choices as one stream."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from actors.ticket import Delta
from serve.errors import ApiError

Deltas = AsyncGenerator[tuple[int, Delta], None]
"""``(choice, delta)``."""


async def until_complete(
    stream: AsyncGenerator[Delta, None], complete: Callable[[], None]
) -> AsyncGenerator[Delta, None]:
    """The ``stream``; ``complete`` is called once its result is there."""
    async with aclosing(stream):
        async for delta in stream:
            if delta.result is not None:
                complete()
            yield delta


async def merge(streams: Sequence[AsyncGenerator[Delta, None]], seconds: float) -> Deltas:
    """Items of several streams as they come, each with its stream's index.

    The first error ends all of them, and so does their time; closing the merged stream closes
    every part.
    """
    deadline = asyncio.get_running_loop().time() + seconds
    items: asyncio.Queue[tuple[int, Delta] | Exception] = asyncio.Queue()

    async def pump(index: int, stream: AsyncGenerator[Delta, None]) -> None:
        try:
            async with aclosing(stream):
                async for delta in stream:
                    items.put_nowait((index, delta))
        except Exception as error:
            items.put_nowait(error)

    tasks = [asyncio.create_task(pump(i, stream)) for i, stream in enumerate(streams)]
    num_running = len(tasks)
    try:
        while num_running:
            try:
                async with asyncio.timeout_at(deadline):
                    item = await items.get()
            except TimeoutError as error:
                message = f"not complete within {seconds:g} s (serve.request_seconds)"
                raise ApiError(504, message, code="timeout") from error
            if isinstance(item, Exception):
                raise item
            num_running -= item[1].result is not None
            yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
