"""Texts of requests become tokens: short ones at once, long ones beside the event loop."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

AT_ONCE = 20_000
"""Characters that are tokenised sooner (20 ms or so) than a thread would be found for them."""

Read = TypeVar("Read")


async def read(call: Callable[[], Read], num_characters: int) -> Read:
    """What ``call`` makes of so many characters. A body has room for seconds of tokenising, in
    which others would get no answer and no chunk; tokenizers let other threads run meanwhile."""
    return call() if num_characters <= AT_ONCE else await asyncio.to_thread(call)
