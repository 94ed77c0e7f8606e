"""One batch that requests join and leave: every answer is what it is alone."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from actors.batching import BatchingEngine, EngineClosed
from actors.ticket import Delta
from decoders.engine import Engine
from decoders.options import DecodeOptions
from decoders.prompts import PromptRow
from decoders.proposers.chain import ChainProposer
from decoders.request import Request
from tests.actors.streams import LONG, WatchedTarget, alone, collect, ids_of, text_of, until
from tests.conftest import tiny_model
from tests.text_target import save_text_target, text_spec

REQUESTS = [
    Request("a", (5, 6, 7), DecodeOptions(max_new_tokens=30, ignore_stop=True)),
    Request("b", tuple(range(20, 39)), DecodeOptions(method="chain", budget=4, max_new_tokens=25)),
    Request("c", (), DecodeOptions(temperature=1.0, max_new_tokens=40), noise_seed=7),
    Request("d", (9,) * 8, DecodeOptions(method="threshold", tau=0.05, max_new_tokens=17)),
    Request("e", (11,), DecodeOptions(max_new_tokens=0)),
    Request(
        "f", (6, 5, 8), DecodeOptions(method="threshold", tau=0.05, edit_tau=0.1, max_new_tokens=17)
    ),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_text_target(tmp_path_factory.mktemp("text") / "tiny")


@pytest.fixture
def target() -> WatchedTarget:
    return WatchedTarget(tiny_model(text_spec()))


@pytest.fixture
def batching(folder: Path, target: WatchedTarget) -> Iterator[BatchingEngine]:
    engine = BatchingEngine(Engine(folder, target, {"chain": ChainProposer()}), max_batch=3)
    yield engine
    engine.close()


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request.id)
def test_streamed_equals_plain(batching: BatchingEngine, request_: Request) -> None:
    plain = alone(batching, request_)
    deltas = asyncio.run(collect(batching, request_))
    assert batching.engine.codec is not None
    assert text_of(deltas) == batching.engine.codec.decode(plain.token_ids)
    assert ids_of(deltas) == plain.token_ids
    assert [delta.result is not None for delta in deltas] == [False] * (len(deltas) - 1) + [True]
    assert deltas[-1].result is not None
    assert deltas[-1].result.request == request_
    assert deltas[-1].result.rounds == plain.rounds


def test_requests_together_equal_each_alone(
    batching: BatchingEngine, target: WatchedTarget
) -> None:
    expected = [alone(batching, request) for request in REQUESTS]

    async def together() -> list[list[Delta]]:
        return await asyncio.gather(*(collect(batching, request) for request in REQUESTS))

    results = [deltas[-1].result for deltas in asyncio.run(together())]
    assert [r and (r.token_ids, r.rounds) for r in results] == [
        (r.token_ids, r.rounds) for r in expected
    ]
    assert not target.caches


def test_one_id_may_be_decoded_twice_at_once(batching: BatchingEngine) -> None:
    async def together() -> list[list[Delta]]:
        return await asyncio.gather(*(collect(batching, REQUESTS[0]) for _ in range(2)))

    first, second = asyncio.run(together())
    assert ids_of(first) == ids_of(second)


def test_requests_join_a_running_batch_up_to_its_size(batching: BatchingEngine) -> None:
    async def run() -> None:
        requests = [Request(str(i), (5, i + 4), LONG) for i in range(5)]
        tasks = [asyncio.create_task(collect(batching, request)) for request in requests]
        await until(lambda: batching.num_running == 3 and batching.num_waiting == 2)
        await asyncio.gather(*tasks)

    asyncio.run(run())


def test_closing_a_stream_stops_its_forwards_within_a_round(
    batching: BatchingEngine, target: WatchedTarget
) -> None:
    async def run() -> int:
        stream = batching.stream(Request("a", (5,), LONG))
        async with aclosing(stream):
            async for _ in stream:
                break
        before = target.num_forwards
        await until(lambda: not target.caches)
        return target.num_forwards - before

    assert asyncio.run(run()) <= 1
    assert batching.num_running == 0


def test_cancelling_a_client_frees_its_place(
    batching: BatchingEngine, target: WatchedTarget
) -> None:
    async def run() -> None:
        task = asyncio.create_task(collect(batching, Request("a", (5,), LONG)))
        await until(lambda: batching.num_running == 1)
        task.cancel()
        await until(lambda: not target.caches)

    asyncio.run(run())


def test_a_request_that_leaves_while_waiting_never_runs(folder: Path) -> None:
    target = WatchedTarget(tiny_model(text_spec()))
    batching = BatchingEngine(Engine(folder, target, {}), max_batch=1)

    async def run() -> None:
        running = asyncio.create_task(collect(batching, Request("a", (5,), LONG)))
        await until(lambda: batching.num_running == 1)
        waiting = asyncio.create_task(collect(batching, Request("b", (6,), LONG)))
        await until(lambda: batching.num_waiting == 1)
        waiting.cancel()
        await until(lambda: batching.num_waiting == 0)
        await running

    asyncio.run(run())
    assert target.num_forwards == len(alone(batching, Request("a", (5,), LONG)).rounds)
    batching.close()


def test_a_failed_forward_fails_its_batch_and_nothing_else(
    batching: BatchingEngine, target: WatchedTarget
) -> None:
    async def run() -> list[list[Delta] | BaseException]:
        tasks = [
            asyncio.create_task(collect(batching, replace(REQUESTS[0], options=LONG)))
            for _ in range(2)
        ]
        await until(lambda: batching.num_running == 2)
        target.fails = True
        failed = await asyncio.gather(*tasks, return_exceptions=True)
        await until(lambda: not target.caches)
        target.fails = False
        return failed

    for error in asyncio.run(run()):
        assert isinstance(error, RuntimeError)
        assert str(error) == "out of memory"
    batching.check()
    deltas = asyncio.run(collect(batching, REQUESTS[0]))
    assert ids_of(deltas) == alone(batching, REQUESTS[0]).token_ids


def test_what_a_forward_raises_is_never_taken_for_a_bad_request(
    batching: BatchingEngine, target: WatchedTarget
) -> None:
    target.failure, target.fails = ValueError("two lists differ"), True
    with pytest.raises(RuntimeError, match="ValueError: two lists differ"):
        asyncio.run(collect(batching, REQUESTS[0]))


def test_a_slot_that_cannot_be_freed_leaves_nobody_waiting(
    batching: BatchingEngine, target: WatchedTarget
) -> None:
    request = replace(REQUESTS[0], options=LONG)
    text = text_of(asyncio.run(collect(batching, request)))

    async def run() -> list[list[Delta] | BaseException]:
        other = asyncio.create_task(collect(batching, Request("b", (6,), LONG)))
        await until(lambda: batching.num_running == 1)
        target.holds = True
        ended = asyncio.gather(
            collect(batching, request, [text[9:12]]), other, return_exceptions=True
        )
        found = await asyncio.wait_for(ended, 20)
        await until(lambda: not batching._thread.is_alive())
        with pytest.raises(EngineClosed):
            await collect(batching, request)
        return list(found)

    assert [str(error) for error in asyncio.run(run())] == ["out of memory"] * 2
    with pytest.raises(RuntimeError, match="out of memory"):
        batching.check()


def test_a_request_that_cannot_be_decoded_fails_alone(batching: BatchingEngine) -> None:
    async def run() -> list[Delta]:
        good = asyncio.create_task(collect(batching, REQUESTS[0]))
        with pytest.raises(ValueError, match="text token"):
            await collect(batching, Request("bad", (999,), LONG))
        with pytest.raises(ValueError, match="drafter is not loaded"):
            await collect(batching, Request("bad", (5,), DecodeOptions(method="order")))
        broken: tuple[Any, ...] = ("no number",)
        with pytest.raises(TypeError):
            await asyncio.wait_for(collect(batching, Request("bad", broken, LONG)), 20)
        return await good

    assert ids_of(asyncio.run(run())) == alone(batching, REQUESTS[0]).token_ids


def test_a_request_that_fails_unforeseen_takes_no_answer_from_those_beside_it(
    batching: BatchingEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = batching._decoder.prepare

    def broken(request: Request) -> object:
        if request.prompt_ids == (13,):
            raise KeyError("a defect")
        return prepare(request)

    monkeypatch.setattr(batching._decoder, "prepare", broken)
    bad = Request("bad", (13,), DecodeOptions(max_new_tokens=8))

    async def run() -> list[list[Delta] | BaseException]:
        with batching.exclusive():  # so that they arrive together
            tasks = [asyncio.create_task(collect(batching, r)) for r in (bad, REQUESTS[0])]
            await until(lambda: batching.num_waiting == 2)
        return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)

    failed, good = asyncio.run(run())
    assert isinstance(failed, KeyError)
    assert isinstance(good, list)
    assert ids_of(good) == alone(batching, REQUESTS[0]).token_ids


def test_an_exclusive_caller_decodes_between_two_rounds(
    batching: BatchingEngine, target: WatchedTarget
) -> None:
    row = PromptRow(id="x", prompt_ids=(5, 6))
    options = DecodeOptions(max_new_tokens=20)

    def decode_inside() -> list[dict]:
        with batching.exclusive() as engine:
            before = target.num_forwards
            time.sleep(0.05)
            assert target.num_forwards == before
            return engine.generate([row], options)

    async def run() -> tuple[list[dict], list[Delta]]:
        task = asyncio.create_task(collect(batching, Request("a", (5,), LONG)))
        await until(lambda: batching.num_running == 1)
        rows = await asyncio.to_thread(decode_inside)
        return rows, await task

    rows, deltas = asyncio.run(run())
    with batching.exclusive() as engine:
        assert rows[0]["token_ids"] == engine.generate([row], options)[0]["token_ids"]
    assert ids_of(deltas) == alone(batching, Request("a", (5,), LONG)).token_ids


@pytest.mark.parametrize("method", ["standard", "chain"])
def test_a_stop_string_ends_the_answer_and_leaks_nothing(
    batching: BatchingEngine, target: WatchedTarget, method: str
) -> None:
    options = DecodeOptions.model_validate({"method": method, "temperature": 1.0}).model_copy(
        update={"max_new_tokens": 120, "ignore_stop": True}
    )
    request = Request("a", (5,), options, noise_seed=3)
    text = text_of(asyncio.run(collect(batching, request)))
    stop = text[40:47]
    deltas = asyncio.run(collect(batching, request, [stop, "never said"]))
    result = deltas[-1].result
    assert text_of(deltas) == text[: text.index(stop)]
    assert result is not None
    assert result.stop_reason == "stop"
    assert result.token_ids == ids_of(deltas)
    assert len(result.token_ids) < 120
    assert not target.caches


def test_closing_the_engine_ends_its_requests(batching: BatchingEngine) -> None:
    async def run() -> None:
        tasks = [
            asyncio.create_task(collect(batching, Request(str(i), (5,), LONG))) for i in range(5)
        ]
        await until(lambda: batching.num_running == 3)
        await asyncio.to_thread(batching.close)
        for error in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(error, EngineClosed)
        with pytest.raises(EngineClosed):
            await collect(batching, REQUESTS[0])
        with pytest.raises(EngineClosed), batching.exclusive():
            pass

    asyncio.run(run())
