"""Memory of an endpoint under mixed load for minutes: it has to stay flat.

Starts ``maskahead serve`` as its user would, sends short and long, streamed and plain, sampled and
greedy requests, some of which are left in the middle, and reads the resident memory of all its
processes meanwhile. ``python -m benchmarks.soak --minutes 60 --out soak.json`` writes the samples
and, for all processes together and for those that hold the target, the slope with its 95 % interval
and a verdict: ``flat`` where memory grows by at most ``--most-growth`` percent an hour, ``grows``
where by more, ``undecided`` where the interval holds both. Exits with 0 only where all of it is
flat, every request was answered, nothing is left in the batch or claimed in the prefix cache, and
the endpoint ended in order.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx

from benchmarks.machine import git_commit, machine, versions
from benchmarks.resident import descendants, resident_bytes, target_holders, trend
from benchmarks.served import Served, engine_samples
from tasks.whole import write_whole

CONFIG = """\
decode: {method: chain, budget: 8, cap: 0.9, max_new_tokens: 128}
max_cache_tokens: 6144
"""
"""The prefix cache keeps answers, too, and by default fills all memory that is free: one that is
full before anything is compared lets growth of any other kind be seen."""
SAMPLE_SECONDS = 5.0
WARM_UP = 0.25
"""Share of the time before anything is compared: caches fill."""
IDLE_SECONDS = 10.0
"""After the last request, in which the batch must be empty."""
ANSWERED, LEFT = "200", "left"
PROMPTS = (
    "Tom has 3 apples and buys 4 more. How many apples does he have?",
    "Write a Python function that adds two numbers.",
    "A train takes 2 hours for 120 km. How fast is it?",
)
REST = ("batch_size", "queue_length", "cache_claimed_tokens")
"""What is 0 in ``/metrics`` when nothing is asked."""

Sample = dict[str, float]


async def ask(http: httpx.AsyncClient, model: str, draw: random.Random) -> str:
    """One request of some kind; what became of it."""
    message = {"role": "user", "content": draw.choice(PROMPTS)}
    body: dict[str, Any] = {
        "model": model,
        "messages": [message],
        "max_tokens": draw.choice((8, 64, 128)),
        "temperature": draw.choice((0, 0.8)),
        "stream": draw.random() < 0.5,
        "logprobs": draw.random() < 0.2,
    }
    path = "/v1/chat/completions"
    if not body["stream"]:
        return str((await http.post(path, json=body)).status_code)
    leaves = draw.random() < 0.3
    lines = [""]
    async with http.stream("POST", path, json=body) as response:
        async for line in response.aiter_lines():
            if leaves:
                return LEFT
            if line:
                lines = [lines[-1], line]
    if response.status_code == httpx.codes.OK and lines[-1] != "data: [DONE]":
        return "cut off"
    return "error event" if lines[0].startswith('data: {"error"') else str(response.status_code)


async def client(url: str, model: str, until: float, seed: int, counts: Counter[str]) -> None:
    """Requests one after another."""
    draw = random.Random(seed)
    async with httpx.AsyncClient(base_url=url, timeout=120) as http:
        while time.monotonic() < until:
            try:
                counts[await ask(http, model, draw)] += 1
            except httpx.HTTPError as error:
                counts[type(error).__name__] += 1


async def watch(pid: int, until: float, samples: list[Sample]) -> None:
    """Memory every few seconds."""
    begun = time.monotonic()
    while time.monotonic() < until:
        pids = descendants(pid)
        samples.append(
            {
                "seconds": round(time.monotonic() - begun, 1),
                "all_bytes": resident_bytes(pids),
                "replica_bytes": resident_bytes(target_holders(pids)),
            }
        )
        await asyncio.sleep(SAMPLE_SECONDS)


async def load(served: Served, model: str, minutes: float, clients: int) -> dict[str, Any]:
    """What became of the requests, the samples, and what the endpoint has left of them."""
    until, counts, samples = time.monotonic() + 60 * minutes, Counter[str](), []
    tasks = [client(served.url, model, until, seed, counts) for seed in range(clients)]
    await asyncio.gather(watch(served.process.pid, until, samples), *tasks)
    return {"requests": dict(counts), "at_rest": await at_rest(served.url), "samples": samples}


async def at_rest(url: str) -> dict[str, float]:
    """What is under way, once nothing is or it should not be any more."""
    deadline = time.monotonic() + IDLE_SECONDS
    async with httpx.AsyncClient(base_url=url, timeout=30) as http:
        while True:
            found = engine_samples((await http.get("/metrics")).text)
            left = {name: found[f"maskahead_{name}"] for name in REST}
            if not any(left.values()) or time.monotonic() > deadline:
                return left
            await asyncio.sleep(0.1)


def judged(samples: Sequence[Sample], most_percent: float) -> dict[str, Any]:
    """The trend and the verdict of all processes, and of those that hold the target."""
    warm = samples[int(WARM_UP * len(samples)) :]
    seconds = [sample["seconds"] for sample in warm]
    found = {}
    for key in ("all_bytes", "replica_bytes"):
        own = trend(seconds, [sample[key] for sample in warm])
        percent = 100 * own.bytes_per_hour / own.bytes
        told = {"percent_per_hour": round(percent, 3), "verdict": own.verdict(most_percent)}
        found[key] = {name: round(value) for name, value in asdict(own).items()} | told
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--config", type=Path, help="A best.yaml; default: the bundled target.")
    parser.add_argument("--most-growth", type=float, default=3.0, help="Percent an hour.")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    config = options.config
    if config is None:
        config = options.out.with_suffix(".yaml")
        config.write_text(CONFIG)
    report: dict[str, Any] = {"command": sys.argv, "commit": git_commit(), "machine": machine()}
    report |= {"versions": versions()}
    with Served(config) as served:
        model = served.model()["id"]
        report |= asyncio.run(load(served, model, options.minutes, options.clients))
        report["exit_code"] = served.end()
    write_whole(options.out, json.dumps(report, indent=1) + "\n")
    report["memory"] = judged(report["samples"], options.most_growth)
    write_whole(options.out, json.dumps(report, indent=1) + "\n")
    shown = ("requests", "at_rest", "exit_code", "memory")
    print(json.dumps({key: report[key] for key in shown}, indent=1))
    return 0 if is_well(report) else 1


def is_well(report: dict[str, Any]) -> bool:
    """Whether everything was as it has to be."""
    flat = all(own["verdict"] == "flat" for own in report["memory"].values())
    answered = report["requests"].keys() <= {ANSWERED, LEFT}
    return flat and answered and not any(report["at_rest"].values()) and report["exit_code"] == 0


if __name__ == "__main__":
    sys.exit(main())
