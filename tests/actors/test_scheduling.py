"""Requests join, wait and are parked as memory allows, and every answer is what it is alone."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from actors.batching import BatchingEngine
from actors.ticket import Delta
from decoders.engine import Engine
from decoders.options import DecodeOptions
from decoders.proposers.chain import ChainProposer
from decoders.request import Request, Result
from models.cache import GROWTH
from tests.actors.streams import WatchedTarget, alone, collect, ids_of, text_of, until
from tests.conftest import tiny_model
from tests.reference.running import prompt_of
from tests.text_target import save_text_target, text_spec

L = 8
TOKENS = 5 * GROWTH
METHODS: list[dict[str, object]] = [
    {"method": "standard"},
    {"method": "chain", "budget": 4},
    {"method": "threshold", "tau": 0.02},
    {"method": "chain", "budget": 3, "cross_block": True},
]


def requests(limit: int = 130) -> list[Request]:
    """Six requests that begin alike, each with its own method, temperature and seed."""
    return [
        Request(
            f"r{index}",
            (*prompt_of(3 * L), *prompt_of(2 + index, index)),
            DecodeOptions.lenient(
                temperature=(0.0, 1.0)[index % 2],
                max_new_tokens=limit - 10 * (index % 4),
                ignore_stop=True,
                **METHODS[index % len(METHODS)],
            ),
            index,
        )
        for index in range(6)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_text_target(tmp_path_factory.mktemp("text") / "tiny")


@pytest.fixture
def target() -> WatchedTarget:
    return WatchedTarget(tiny_model(text_spec()))


@pytest.fixture
def batching(folder: Path, target: WatchedTarget) -> Iterator[BatchingEngine]:
    engine = Engine(folder, target, {"chain": ChainProposer()})
    opened = BatchingEngine(engine, max_batch=6, cache_tokens=TOKENS)
    yield opened
    opened.close()


async def gathered(batching: BatchingEngine, asked: Sequence[Request]) -> list[list[Delta]]:
    return await asyncio.gather(*(collect(batching, request) for request in asked))


def answered(deltas: Sequence[Delta]) -> Result:
    result = deltas[-1].result
    assert result is not None
    return result


def test_requests_that_outgrow_the_memory_are_parked_and_lose_nothing(
    batching: BatchingEngine,
) -> None:
    """Deltas that were sent before stay valid: joined they are the whole answer."""
    expected = [alone(batching, request) for request in requests()]
    streams = asyncio.run(gathered(batching, requests()))
    assert batching.stats().parked > 0
    for deltas, plain in zip(streams, expected, strict=True):
        assert answered(deltas).token_ids == plain.token_ids == ids_of(deltas)
        assert answered(deltas).nfe == plain.nfe
        assert batching.engine.codec is not None
        assert text_of(deltas) == batching.engine.codec.decode(plain.token_ids)


def test_the_second_of_two_equal_requests_finds_its_prompt_warm(batching: BatchingEngine) -> None:
    request = requests(40)[1]
    first, second = (answered(asyncio.run(collect(batching, request))) for _ in range(2))
    assert (first.cache_hits, second.cache_hits) == (0, 3 * L)
    assert second.token_ids == first.token_ids
    assert second.rounds == first.rounds[1:], "but for the prefill the rounds are the same"
    stats = batching.stats()
    assert (stats.cache_hits, stats.cache_misses) == (3 * L, 3 * L)


def test_the_numbers_add_up(batching: BatchingEngine, target: WatchedTarget) -> None:
    asked = requests(60)[:3]
    results = [answered(deltas) for deltas in asyncio.run(gathered(batching, asked))]
    stats = batching.stats()
    assert stats.finished == len(asked)
    assert stats.rounds == target.num_forwards
    assert stats.commits == sum(result.commits for result in results)
    assert stats.drafts == sum(r.drafts for result in results for r in result.rounds) > 0
    assert stats.accepted == sum(r.accepted for result in results for r in result.rounds)
    assert (stats.running, stats.waiting, stats.cache_claimed) == (0, 0, 0)
    assert stats.cache_tokens == TOKENS
    assert 0 < stats.cache_kept == len(target.kept) * L <= TOKENS


def test_a_request_that_never_fits_is_refused_with_numbers(batching: BatchingEngine) -> None:
    with pytest.raises(ValueError, match=r"max_new_tokens 350 take up to 384 tokens .* are 320 "):
        asyncio.run(collect(batching, requests(350)[0]))


def test_a_short_request_passes_a_long_one_that_finds_no_room(batching: BatchingEngine) -> None:
    options = DecodeOptions(max_new_tokens=120, ignore_stop=True)
    running = [Request(str(i), (5, i + 5), options) for i in range(2)]
    long = Request("long", prompt_of(20 * L), DecodeOptions(max_new_tokens=60, ignore_stop=True))
    short = Request("short", (5,), DecodeOptions(max_new_tokens=4, ignore_stop=True))
    ended: list[str] = []

    async def ask(request: Request) -> None:
        deltas = await collect(batching, request)
        assert ids_of(deltas) == expected[request.id]
        ended.append(request.id)

    async def run() -> None:
        with batching.exclusive():
            asked = (*running, long, short)
            tasks = [asyncio.create_task(ask(request)) for request in asked]
            await asyncio.sleep(0)  # all of them stand in line
            assert batching.num_waiting == len(asked)
        await asyncio.gather(*tasks)

    expected = {request.id: alone(batching, request).token_ids for request in (*running, long)}
    expected["short"] = alone(batching, short).token_ids
    asyncio.run(run())
    assert ended[0] == "short"
    assert ended[-1] == "long"
    assert batching.stats().passed == 1


def test_a_client_that_leaves_while_parked_takes_nothing_along(
    batching: BatchingEngine, target: WatchedTarget
) -> None:
    async def run() -> None:
        tasks = [asyncio.create_task(collect(batching, request)) for request in requests()]
        await until(lambda: batching.stats().parked > 0)
        for task in tasks[1:]:
            task.cancel()
        deltas = await tasks[0]
        assert ids_of(deltas) == expected
        await until(lambda: batching.num_waiting == 0 and not target.caches)

    expected = alone(batching, requests()[0]).token_ids
    asyncio.run(run())
    assert batching.stats().cache_claimed == 0


def test_a_failed_forward_leaves_waiting_requests_alone(
    batching: BatchingEngine, target: WatchedTarget
) -> None:
    async def run() -> list[list[Delta] | BaseException]:
        tasks = [asyncio.create_task(collect(batching, request)) for request in requests()]
        await until(lambda: batching.stats().parked > 0)
        with batching.exclusive():
            waiting = batching.num_waiting
            target.fails_next = True
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(isinstance(each, list) for each in found) >= waiting > 0
        return found

    expected = [alone(batching, request) for request in requests()]
    for each, plain in zip(asyncio.run(run()), expected, strict=True):
        if isinstance(each, list):
            assert ids_of(each) == plain.token_ids
        else:
            assert str(each) == "out of memory"


def test_who_cannot_be_parked_is_told(
    batching: BatchingEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def park(request_id: str) -> None:
        raise RuntimeError("no memory to keep it in")

    async def run() -> list[list[Delta] | BaseException]:
        tasks = [collect(batching, request) for request in requests()]
        ended = asyncio.gather(*tasks, return_exceptions=True)
        return await asyncio.wait_for(ended, 60)

    monkeypatch.setattr(batching._scheduler.decoder, "park", park)
    told = [str(each) for each in asyncio.run(run()) if isinstance(each, BaseException)]
    assert set(told) == {"no memory to keep it in"}
    batching.check()
