"""From text to tokens and back: what is short at once, what is long beside the event loop."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

AT_ONCE = 20_000
"""Characters, or tokens, that are read sooner than a thread would be found for them."""

Read = TypeVar("Read")


async def read(call: Callable[[], Read], size: int) -> Read:
    """What ``call`` makes of so many characters or tokens. A body has room for seconds of it, in
    which others would get no answer and no chunk; tokenizers let other threads run meanwhile."""
    return call() if size <= AT_ONCE else await asyncio.to_thread(call)
