"""Runs of one batching engine: so many clients, each asking for one answer after the other."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter

import torch

from actors.batching import BatchingEngine
from benchmarks.auto_promise import PROBLEM_SEED
from decoders.engine import Engine
from decoders.options import DecodeOptions
from decoders.prompts import PromptRow
from decoders.request import Request, Result
from models.target import NO_PARENT, CopyBatch
from tasks.bundled import problems

FORWARDS = 7
"""Forwards of each size that are timed between two runs."""


@dataclass(frozen=True)
class Run:
    """Requests that were answered, in their order, and how long all of them took."""

    seconds: float
    results: tuple[Result, ...]

    @property
    def tokens(self) -> int:
        return sum(len(result.token_ids) for result in self.results)


def answer(batching: BatchingEngine, requests: Sequence[Request], clients: int) -> Run:
    """Let ``clients`` ask for one answer after the other until all are given."""
    results: dict[int, Result] = {}

    async def client(waiting: Iterator[tuple[int, Request]]) -> None:
        for index, request in waiting:
            async for delta in batching.stream(request):
                if delta.result is not None:
                    results[index] = delta.result

    async def together() -> None:
        waiting = iter(enumerate(requests))
        await asyncio.gather(*(client(waiting) for _ in range(clients)))

    started = perf_counter()
    asyncio.run(together())
    seconds = perf_counter() - started
    return Run(seconds, tuple(results[index] for index in range(len(requests))))


@contextmanager
def opened(engine: Engine, max_batch: int) -> Iterator[BatchingEngine]:
    """A batch without a prefix memory: the second of two runs must not find its prompts warm."""
    batching = BatchingEngine(engine, max_batch)
    try:
        yield batching
    finally:
        batching.close()


def price(engine: Engine, prompts: Sequence[Sequence[int]], slots: Iterator[int]) -> list[float]:
    """Seconds of a forward of the first request alone, and of all of them: medians, in turn."""
    target, block = engine.target, engine.target.spec.block_size
    held = [next(slots) for _ in prompts]
    rows = torch.arange(block // 2, block)

    def forward(over: Sequence[int]) -> float:
        size = len(over)
        tokens = torch.full((size, block), target.spec.mask_token_id)
        asked = (torch.arange(size)[:, None] * block + rows).flatten()
        started = perf_counter()
        batch = CopyBatch(over, tokens, [NO_PARENT] * size, [False] * size, asked)
        target.forward(batch).argmax(dim=1).cpu()
        return perf_counter() - started

    for slot, prompt in zip(held, prompts, strict=True):
        target.open_slot(slot, len(prompt) + block)
        target.prefill(slot, tuple(prompt[: len(prompt) // block * block]))
    try:
        turns = [(forward(held[:1]), forward(held)) for _ in range(1 + FORWARDS)][1:]
    finally:
        for slot in held:
            target.close_slot(slot)
    return [median(times) for times in zip(*turns, strict=True)]


def speed(runs: Sequence[Run]) -> float:
    """Tokens a second of all runs together."""
    return sum(run.tokens for run in runs) / sum(run.seconds for run in runs)


def equal(one: Sequence[Run], other: Sequence[Run]) -> int:
    """How many answers are the same on both sides."""
    pairs = zip(one, other, strict=True)
    return sum(
        (a.token_ids, a.stop_reason) == (b.token_ids, b.stop_reason)
        for first, second in pairs
        for a, b in zip(first.results, second.results, strict=True)
    )


def batches_of(
    engine: Engine, task: str, size: int, num_batches: int, options: DecodeOptions
) -> list[list[Request]]:
    """So many batches of prompts of a task, none of them twice."""
    asked = problems(task, "heldout", size * num_batches, PROBLEM_SEED)
    rows = [PromptRow(id=p.id, prompt=p.prompt) for p in asked]
    requests = engine.requests(rows, options)
    return [requests[first : first + size] for first in range(0, len(requests), size)]


def in_step(requests: Sequence[Request], block: int) -> list[Request]:
    """Requests whose prompts are cut to whole blocks: with one limit of whole blocks all take
    equally many rounds, and a batch stays full to its end."""
    return [
        replace(each, prompt_ids=each.prompt_ids[: len(each.prompt_ids) // block * block])
        for each in requests
    ]
