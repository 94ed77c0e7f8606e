"""One load run: levels in turn, endpoints by turns within a level; then files and a table."""

import asyncio
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx

from benchmarks.load.client import Question, Sample, ask
from benchmarks.load.config import Endpoint, LoadConfig
from benchmarks.load.figures import save_figures
from benchmarks.load.loops import Done, closed_loop, open_loop, poisson_arrivals
from benchmarks.load.questions import read_questions
from benchmarks.load.summary import Turn, compare, summarize
from benchmarks.machine import machine, versions
from tasks.whole import write_whole

KEY = "MASKAHEAD_API_KEY"
"""Environment variable with the API key, where the endpoint asks for one."""
CONNECT = 10.0
UNITS = {"closed": "clients", "open": "per s"}

Turns = dict[str, list[Turn]]
"""By the endpoint's name."""
Report = Callable[[int, int], None]


def run_load(config: LoadConfig, out: Path, command: str, report: Report) -> dict[str, Any]:
    """Measure, and write ``load.json``, ``samples.jsonl`` and plots into ``out``; returns what
    ``load.json`` holds.

    Raises ``ValueError`` for an endpoint that is not there or not ours to ask, ``RuntimeError``
    for one that answers no warm-up request.
    """
    model, measured = asyncio.run(_measure(config, report))
    found = {
        "command": command,
        "versions": versions(),
        "machine": machine(),
        "settings": config.model_dump(mode="json"),
        "model": model,
        "levels": [_level(config, level, turns) for level, turns in measured],
    }
    out.mkdir(parents=True, exist_ok=True)
    write_whole(out / "samples.jsonl", "".join(_rows(measured)))
    write_whole(out / "load.json", json.dumps(found, indent=1) + "\n")
    save_figures(config, measured, found["levels"], out)
    return found


async def _measure(config: LoadConfig, report: Report) -> tuple[str, list[tuple[float, Turns]]]:
    key = os.environ.get(KEY)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    # A pool smaller than the load would be measured in place of the endpoint.
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    timeout = httpx.Timeout(config.timeout, connect=CONNECT)
    total = len(config.levels) * len(config.endpoints) * config.requests
    made = iter(range(1, total + 1))
    async with httpx.AsyncClient(headers=headers, limits=limits, timeout=timeout) as client:
        models = [await find_model(client, each) for each in config.endpoints]
        model = config.model or models[0]
        questions = read_questions(config, model)
        measured = [
            (
                level,
                await _one_level(
                    client, config, level, questions, lambda: report(next(made), total)
                ),
            )
            for level in config.levels
        ]
    return model, measured


async def find_model(client: httpx.AsyncClient, endpoint: Endpoint) -> str:
    """The name of the first model that an endpoint lists."""
    try:
        response = await client.get(f"{endpoint.url}/models")
    except httpx.HTTPError as error:
        raise ValueError(f"{endpoint.name} {endpoint.url}: no endpoint answers") from error
    if response.status_code == httpx.codes.UNAUTHORIZED:
        raise ValueError(f"{endpoint.name} {endpoint.url}: it asks for an API key; set {KEY}")
    try:
        return response.json()["data"][0]["id"]
    except (ValueError, LookupError, TypeError) as error:
        told = f"/models answers {response.status_code} and lists no model"
        raise ValueError(f"{endpoint.name} {endpoint.url}: {told}") from error


async def _one_level(
    client: httpx.AsyncClient,
    config: LoadConfig,
    level: float,
    questions: Sequence[Question],
    done: Done,
) -> Turns:
    """Warm both endpoints up, then measure them by turns: whoever was first comes second next."""
    warm, asked = questions[: config.warmup], questions[config.warmup :]
    for endpoint in config.endpoints:
        await _warm_up(client, config, endpoint, warm)
    turns: Turns = {endpoint.name: [] for endpoint in config.endpoints}
    num_turns = config.turns if len(config.endpoints) > 1 else 1
    for number in range(num_turns):
        part = asked[number::num_turns]
        for endpoint in config.endpoints[:: -1 if number % 2 else 1]:
            samples = await _one_turn(client, config, endpoint, level, part, number, done)
            turns[endpoint.name].append(samples)
    return turns


async def _warm_up(
    client: httpx.AsyncClient, config: LoadConfig, endpoint: Endpoint, warm: Sequence[Question]
) -> None:
    samples = [await ask(client, endpoint, each, config.timeout, 0.0) for each in warm]
    if samples and all(sample.error for sample in samples):
        kinds = ", ".join(sorted({sample.error for sample in samples if sample.error}))
        raise RuntimeError(f"{endpoint.name} {endpoint.url}: no warm-up was answered ({kinds})")


async def _one_turn(
    client: httpx.AsyncClient,
    config: LoadConfig,
    endpoint: Endpoint,
    level: float,
    questions: Sequence[Question],
    number: int,
    done: Done,
) -> list[Sample]:
    async def send(question: Question, began: float, due: float | None) -> Sample:
        return await ask(client, endpoint, question, config.timeout, began, due)

    if config.loop == "closed":
        return await closed_loop(send, questions, int(level), done)
    arrivals = poisson_arrivals(len(questions), level, config.seed + number)
    return await open_loop(send, questions, arrivals, done)


def _level(config: LoadConfig, level: float, turns: Turns) -> dict[str, Any]:
    found: dict[str, Any] = {
        "level": level,
        "endpoints": {name: summarize(made, config.limits) for name, made in turns.items()},
    }
    if len(turns) == 2:
        ours, theirs = turns.values()
        found["ratio"] = compare(ours, theirs, config.seed)
    return found


def _rows(measured: Sequence[tuple[float, Turns]]) -> list[str]:
    """Every request, without its text."""
    return [
        json.dumps({"level": level, "endpoint": name, "turn": number} | _facts(sample)) + "\n"
        for level, turns in measured
        for name, made in turns.items()
        for number, turn in enumerate(made)
        for sample in turn
    ]


def _facts(sample: Sample) -> dict[str, Any]:
    return {name: value for name, value in asdict(sample).items() if name != "text"}


def table_rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    """What a terminal shows of ``load.json``: a row for each level and endpoint."""
    unit = UNITS[found["settings"]["loop"]]
    several = len(found["settings"]["endpoints"]) > 1
    rows = []
    for level in found["levels"]:
        for name, own in level["endpoints"].items():
            row: dict[str, Any] = {unit: f"{level['level']:g}"}
            row |= {"endpoint": name} if several else {}
            row |= {"answered": f"{own['answered']}/{own['requests']}"}
            row |= {"errors": own["errors"]} if own["errors"] else {}
            row |= {"tokens/s": own["tokens_per_second"]}
            row |= {"first text s": _spread(own["first_text"])}
            row |= {"per token ms": _spread(own["per_token"], 1000)}
            if own["goodput"]["limits"]:
                row |= {"goodput/s": own["goodput"]["per_second"]}
            rows.append(row)
    return rows


def _spread(values: dict[str, float] | None, scale: float = 1) -> str | None:
    """The median and p99."""
    return None if values is None else " ".join(f"{values[p] * scale:.3g}" for p in ("p50", "p99"))


RATIOS = {
    "tokens_per_second": "tokens a second",
    "first_text": "seconds to the first text",
    "per_token": "seconds a token after it",
    "seconds": "seconds of the whole answer",
}


def ratio_rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The comparison of two endpoints: a row for each level and quantity; none for one endpoint."""
    unit = UNITS[found["settings"]["loop"]]
    return [
        {unit: f"{level['level']:g}", "of": told} | (level["ratio"][name] or {})
        for level in found["levels"]
        if "ratio" in level
        for name, told in RATIOS.items()
    ]


def same_texts(found: dict[str, Any]) -> str:
    """How many answers of two endpoints were the same."""
    ratios = [level["ratio"] for level in found["levels"]]
    same, pairs = (sum(ratio[name] for ratio in ratios) for name in ("same_text", "pairs"))
    return f"the same text: {same} of {pairs} pairs of answers"
