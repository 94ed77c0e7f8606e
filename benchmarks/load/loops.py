"""When requests are sent: by clients that wait for their answers, or at random times."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter

import numpy as np

from benchmarks.load.client import Question, Sample

Send = Callable[[Question, float, float | None], Awaitable[Sample]]
"""``send(question, began, due)``."""
Done = Callable[[], None]
"""Called after every request."""


def poisson_arrivals(count: int, rate: float, seed: int) -> list[float]:
    """Seconds from the beginning at which ``count`` requests are due: independent exponential gaps
    of mean ``1 / rate``, always the same for a seed."""
    gaps = np.random.default_rng(seed).exponential(1 / rate, count)
    return np.cumsum(gaps).tolist()


async def closed_loop(
    send: Send, questions: Sequence[Question], clients: int, done: Done
) -> list[Sample]:
    """Samples in the order of the questions; each of the clients sends its next question once it
    was answered."""
    began = perf_counter()
    samples: dict[int, Sample] = {}
    waiting = iter(enumerate(questions))

    async def client() -> None:
        for index, question in waiting:
            samples[index] = await send(question, began, None)
            done()

    await asyncio.gather(*(client() for _ in range(min(clients, len(questions)))))
    return [samples[index] for index in range(len(questions))]


async def open_loop(
    send: Send, questions: Sequence[Question], arrivals: Sequence[float], done: Done
) -> list[Sample]:
    """Samples in the order of the questions, each sent when it is due."""
    began = perf_counter()

    async def one(question: Question, due: float) -> Sample:
        await asyncio.sleep(max(0.0, began + due - perf_counter()))
        sample = await send(question, began, due)
        done()
        return sample

    pairs = zip(questions, arrivals, strict=True)
    return list(await asyncio.gather(*(one(question, due) for question, due in pairs)))
