"""One load run: levels in turn, endpoints by turns within a level; then files and a table."""

import asyncio
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from benchmarks.load.client import Question, Sample, ask
from benchmarks.load.config import Endpoint, LoadConfig
from benchmarks.load.figures import save_figures
from benchmarks.load.loops import Done, closed_loop, open_loop, poisson_arrivals
from benchmarks.load.questions import read_questions
from benchmarks.load.summary import Turn, compare, summarize
from benchmarks.machine import git_commit, machine, versions
from tasks.whole import write_whole

KEY = "MASKAHEAD_API_KEY"
"""Environment variable with the API key, where the endpoint asks for one."""
CONNECT = 10.0

Turns = dict[str, list[Turn]]
"""By the endpoint's name."""
Report = Callable[[int, int], None]


def run_load(config: LoadConfig, out: Path, command: str, report: Report) -> dict[str, Any]:
    """Measure, and write ``load.json``, ``samples.jsonl`` and plots into ``out``; returns what
    ``load.json`` holds. Samples are written turn by turn, so that an interruption loses one turn.

    Raises ``ValueError`` for an endpoint that is not there or not ours to ask, ``RuntimeError``
    for one that answers no warm-up request.
    """
    out.mkdir(parents=True, exist_ok=True)
    models, measured = asyncio.run(_measure(config, out / "samples.jsonl", report))
    found = {
        "command": command,
        "commit": git_commit(),
        "versions": versions(),
        "machine": machine(),
        "settings": config.model_dump(mode="json"),
        "models": models,
        "levels": [_level(config, level, turns) for level, turns in measured],
    }
    write_whole(out / "load.json", json.dumps(found, indent=1) + "\n")
    save_figures(config, measured, found["levels"], out)
    return found


async def _measure(
    config: LoadConfig, samples: Path, report: Report
) -> tuple[dict[str, str], list[tuple[float, Turns]]]:
    """The endpoints' models, and what was sent at every level."""
    key = os.environ.get(KEY)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    # A pool smaller than the load would be measured in place of the endpoint.
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    timeout = httpx.Timeout(config.timeout, connect=CONNECT)
    total = len(config.levels) * len(config.endpoints) * config.requests
    made = iter(range(1, total + 1))
    questions = read_questions(config)
    async with httpx.AsyncClient(headers=headers, limits=limits, timeout=timeout) as client:
        listed = {each.name: await find_model(client, each) for each in config.endpoints}
        models = {name: config.model or model for name, model in listed.items()}
        write_whole(samples, "")
        run = _Run(config, client, models, samples, lambda: report(next(made), total))
        levels = zip(config.levels, questions, strict=True)
        return models, [(level, await run.level(level, asked)) for level, asked in levels]


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


@dataclass(frozen=True)
class _Run:
    """A run under way; ``models`` by the endpoint's name."""

    config: LoadConfig
    client: httpx.AsyncClient
    models: dict[str, str]
    samples: Path
    done: Done

    async def level(self, level: float, questions: Sequence[Question]) -> Turns:
        """Warm all endpoints up, then measure them by turns: whoever was first comes second
        next."""
        config = self.config
        warm, asked = questions[: config.warmup], questions[config.warmup :]
        for endpoint in config.endpoints:
            await self.warm_up(endpoint, warm)
        turns: Turns = {endpoint.name: [] for endpoint in config.endpoints}
        num_turns = config.turns if len(config.endpoints) > 1 else 1
        for number in range(num_turns):
            part = asked[number::num_turns]
            for endpoint in config.endpoints[:: -1 if number % 2 else 1]:
                samples = await self.turn(endpoint, level, part, number)
                turns[endpoint.name].append(samples)
                with self.samples.open("a", encoding="utf-8") as file:
                    file.writelines(_row(level, endpoint, number, sample) for sample in samples)
        return turns

    async def warm_up(self, endpoint: Endpoint, warm: Sequence[Question]) -> None:
        samples = [await self.send(endpoint, each, 0.0, None) for each in warm]
        if samples and all(sample.error for sample in samples):
            told = "; ".join(
                sorted({f"{each.error}: {each.said}".rstrip(": ") for each in samples})
            )
            raise RuntimeError(f"{endpoint.name} {endpoint.url}: no warm-up was answered ({told})")

    async def turn(
        self, endpoint: Endpoint, level: float, questions: Sequence[Question], number: int
    ) -> list[Sample]:
        send = partial(self.send, endpoint)
        if self.config.loop == "closed":
            return await closed_loop(send, questions, int(level), self.done)
        arrivals = poisson_arrivals(len(questions), level, self.config.seed + number)
        return await open_loop(send, questions, arrivals, self.done)

    async def send(
        self, endpoint: Endpoint, question: Question, began: float, due: float | None
    ) -> Sample:
        fields = question.fields | {"model": self.models[endpoint.name]}
        asked = replace(question, fields=fields)
        return await ask(self.client, endpoint, asked, self.config.timeout, began, due)


def _level(config: LoadConfig, level: float, turns: Turns) -> dict[str, Any]:
    found: dict[str, Any] = {
        "level": level,
        "endpoints": {name: summarize(made, config.limits) for name, made in turns.items()},
    }
    if len(turns) == 2:
        ours, theirs = turns.values()
        found["ratio"] = compare(ours, theirs, config.seed)
    return found


def _row(level: float, endpoint: Endpoint, number: int, sample: Sample) -> str:
    """One request as a line, without its text."""
    facts = {name: value for name, value in asdict(sample).items() if name != "text"}
    return json.dumps({"level": level, "endpoint": endpoint.name, "turn": number} | facts) + "\n"
