"""Load on real sockets: a real endpoint answers, broken ones are counted."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from benchmarks.load.client import Question, Sample, ask
from benchmarks.load.config import LoadConfig, endpoint_of, read_config
from benchmarks.load.run import find_model, run_load
from benchmarks.load.tables import ratio_rows, same_texts, table_rows
from decoders.options import DecodeOptions
from maskahead import main
from models.config import TargetConfig
from serve.api import build_api
from serve.app import open_service
from serve.config import ServeConfig
from tests.benchmarks.test_load_numbers import SETTINGS
from tests.serve.listening import listening
from tests.text_target import save_text_target

CHUNK = 'data: {"choices": [{"text": "a", "finish_reason": null}]}\n\n'
LAST = 'data: {"choices": [{"text": "b", "finish_reason": "stop"}]}\n\n'
USAGE = 'data: {"choices": [], "usage": {"completion_tokens": 2}}\n\n'
DONE = "data: [DONE]\n\n"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = save_text_target(tmp_path_factory.mktemp("load") / "tiny", max_positions=4096)
    decode = DecodeOptions(method="chain", budget=4, ignore_stop=True)
    config = ServeConfig(
        target=TargetConfig(path=str(folder), dtype="float64"),
        decode=decode,
        max_batch=4,
        max_waiting=0,
    )
    service = open_service(config)
    with listening(build_api(service)) as base:
        yield base
    service.backend.close()


def configured(url: str, **changed: Any) -> LoadConfig:
    return read_config(SETTINGS | {"endpoints": [endpoint_of("url", url, ())]} | changed)


def quiet(done: int, total: int) -> None:
    assert done <= total


def test_a_closed_loop_measures_every_request(url: str, tmp_path: Path) -> None:
    found = run_load(configured(url, levels=(1, 3)), tmp_path, "the command", quiet)
    assert found["models"] == {"url": "tiny"}
    assert found == json.loads((tmp_path / "load.json").read_text())
    assert [level["level"] for level in found["levels"]] == [1, 3]
    for level in found["levels"]:
        own = level["endpoints"]["url"]
        assert (own["requests"], own["answered"], own["errors"]) == (6, 6, {})
        assert own["tokens"] == 6 * 16
        assert 0 < own["nfe"] <= own["tokens"]
        assert 0 < own["first_text"]["p50"] < own["seconds"]["p50"]
        assert own["goodput"]["share"] == 1
    rows = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text().splitlines()]
    assert len(rows) == 12
    for name in ("latency.png", "levels.png", "load.html"):
        assert (tmp_path / name).stat().st_size > 1000
    assert len(table_rows(found)) == 2
    assert ratio_rows(found) == []


def test_two_methods_of_one_endpoint_are_measured_by_turns(url: str, tmp_path: Path) -> None:
    free = endpoint_of("against", url, ("method=standard",))
    endpoints = [endpoint_of("url", url, ()), free]
    found = run_load(configured(url, endpoints=endpoints), tmp_path, "", quiet)
    ours, theirs = found["levels"][0]["endpoints"].values()
    assert ours["nfe"] < theirs["nfe"] >= 96, "draft-free: a forward a position"
    ratios = found["levels"][0]["ratio"]
    assert (ratios["pairs"], ratios["same_text"]) == (6, 6), "drafts change no text"
    assert ratios["seconds"]["low"] <= ratios["seconds"]["ratio"] <= ratios["seconds"]["high"]
    assert ratios["tokens_per_second"]["n"] == 2
    rows = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text().splitlines()]
    assert {(row["endpoint"], row["turn"]) for row in rows} == {
        (name, turn) for name in ("url", "against") for turn in (0, 1)
    }
    assert [row["n"] for row in ratio_rows(found)] == [2, 6, 6, 6]
    assert same_texts(found) == "the same text: 6 of 6 pairs of answers"


def test_an_open_loop_sends_on_time_and_counts_what_was_refused(url: str, tmp_path: Path) -> None:
    flood = configured(url, loop="open", levels=(500.0,), requests=40, max_tokens=64)
    own = run_load(flood, tmp_path, "", quiet)["levels"][0]["endpoints"]["url"]
    assert own["requests"] == own["answered"] + sum(own["errors"].values()) == 40
    assert set(own["errors"]) == {"http 503"}
    assert own["answered"] >= 4, "as many as share a batch"
    assert own["late"]["p50"] < 0.5


def broken_endpoint() -> FastAPI:
    """Every way to fail, each under a path of its own."""
    api = FastAPI()

    async def slow() -> AsyncIterator[str]:
        yield CHUNK
        await asyncio.sleep(5)

    async def torn() -> AsyncIterator[str]:
        yield CHUNK
        raise RuntimeError("the process dies")

    async def whole(*parts: str) -> AsyncIterator[str]:
        for part in parts:
            yield part

    @api.post("/{case}/v1/completions")
    async def completions(case: str) -> Response:
        streams = {
            "slow": slow(),
            "torn": torn(),
            "cut": whole(CHUNK),
            "amid": whole(CHUNK, 'data: {"error": {"message": "out of memory"}}\n\n', DONE),
            "html": whole("data: <html>\n\n"),
            "list": whole("data: [1]\n\n"),
            "separator": whole(CHUNK.replace('"a"', '"\u2028\x85"'), LAST, USAGE, DONE),
            "uncounted": whole(CHUNK, LAST, DONE),
            "well": whole(CHUNK, LAST, USAGE, DONE),
        }
        if case in streams:
            return StreamingResponse(streams[case], media_type="text/event-stream")
        return JSONResponse({"error": {"message": "no"}}, int(case))

    @api.get("/{case}/v1/models")
    async def models(case: str) -> Response:
        return PlainTextResponse("locked", 401) if case == "401" else JSONResponse({"data": []})

    return api


@pytest.fixture(scope="module")
def broken() -> Iterator[str]:
    with listening(broken_endpoint()) as base:
        yield base


KINDS = {
    "slow": "timeout",
    "torn": "connection lost",
    "cut": "cut off",
    "amid": "error amid the stream",
    "html": "not a stream of chunks",
    "list": "not a stream of chunks",
    "separator": None,
    "uncounted": "no usage",
    "well": None,
    "429": "http 429",
    "500": "http 500",
}


@pytest.mark.parametrize("case", KINDS)
def test_every_failure_is_an_error_of_its_kind(broken: str, case: str) -> None:
    sample = send(f"{broken}/{case}")
    assert sample.error == KINDS[case]
    assert sample.seconds < 2
    if case == "well":
        assert (sample.text, sample.tokens) == ("ab", 2)


def send(url: str) -> Sample:
    async def run() -> Sample:
        async with httpx.AsyncClient() as client:
            question = Question("q", {"prompt": "hi"})
            return await ask(client, endpoint_of("url", url, ()), question, 0.3, 0.0)

    return asyncio.run(run())


def test_an_endpoint_that_is_not_there_is_an_error_too() -> None:
    assert send("http://127.0.0.1:9").error == "no connection"


@pytest.mark.parametrize(
    ("path", "told"), [("/401", "asks for an API key"), ("/none", "lists no model")]
)
def test_an_endpoint_without_models_is_refused(broken: str, path: str, told: str) -> None:
    async def run() -> str:
        async with httpx.AsyncClient() as client:
            return await find_model(client, endpoint_of("url", broken + path, ()))

    with pytest.raises(ValueError, match=told):
        asyncio.run(run())


def test_the_command_prints_a_table_and_names_what_is_wrong(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["load", "--url", url, "--requests", "4", "--warmup", "0", "--max-tokens", "8"]
    assert main([*words, "--concurrency", "2", "--out", str(tmp_path)]) == 0
    assert "4/4" in capsys.readouterr().out
    assert main([*words, "--concurrency", "two", "--out", str(tmp_path)]) == 2
    assert "--concurrency 'two' must be numbers" in capsys.readouterr().err
    assert main([*words, "--concurrency", "2", "--rate", "1"]) == 2
    assert "--concurrency 2 and --rate 1: give one of them" in capsys.readouterr().err
    assert main(["load", "--url", "http://127.0.0.1:9", "--out", str(tmp_path)]) == 2
    assert "no endpoint answers" in capsys.readouterr().err
    refused = ["--send", "methode=chain", "--out", str(tmp_path)]
    assert main([*words, *refused]) == 1
    told = capsys.readouterr().err
    assert "url, http 400: unknown field: maskahead.methode" in told
    assert told.endswith("no request was answered\n")
    assert main([*words, "--warmup", "1", *refused]) == 1
    assert (
        "no warm-up was answered (http 400: unknown field: maskahead.methode"
        in capsys.readouterr().err
    )
