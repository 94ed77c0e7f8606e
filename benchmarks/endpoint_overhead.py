"""What the endpoint adds to an answer, beside what Ray Serve's own proxy takes.

One client asks ``maskahead serve`` for real answers, whole and streamed. What it waits beyond the
seconds that the engine itself spent on the answer (``usage.maskahead.seconds``) is the way there
and back: Ray's proxy, the API, queue and threads. In turn with it, the same client sends the same
bodies through a proxy of Ray's to a deployment that gives the same answers at once and does nothing
else. The difference of the two is what the endpoint adds.

``python -m benchmarks.endpoint_overhead --out runs/endpoint-overhead.json`` exits with 1 where the
endpoint adds more than ``--most-ms`` in the median.
"""

import argparse
import json
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import httpx
import numpy as np
from fastapi import FastAPI, Request
from fastapi.responses import Response
from ray import serve

from benchmarks.interval import median_interval
from benchmarks.machine import git_commit, machine, versions
from benchmarks.served import Served
from cluster.console import progress, show_table
from cluster.session import ClusterConfig, session
from tasks.bundled import problems
from tasks.whole import write_whole

CONFIG = "decode: {method: order, budget: auto, cap: 0.9, max_new_tokens: 128}\n"
HOST = "127.0.0.1"
WARM_UP = 5
"""Requests of each kind that count nowhere."""
KINDS = ("whole", "streamed")

bare_api = FastAPI()
Body = dict[str, Any]


@serve.deployment(ray_actor_options={"num_cpus": 0})
@serve.ingress(bare_api)
class Bare:
    """Gives back what it was told to give for a body."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[str, str]] = {}

    @bare_api.put("/{key}")
    async def learn(self, key: str, request: Request) -> None:
        told = (await request.body()).decode()
        self.answers[key] = (told, request.headers["content-type"])

    @bare_api.post("/{key}")
    async def answer(self, key: str, request: Request) -> Response:
        await request.body()
        text, kind = self.answers[key]
        return Response(text, media_type=kind)


def measure(
    endpoint: httpx.Client, bare: httpx.Client, bodies: Sequence[Body], repeats: int
) -> dict[str, list[dict[str, float]]]:
    """For every kind of answer, seconds of each request: ``endpoint`` and ``bare`` as the client
    saw them, ``engine`` as the engine counted."""
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    turns = [(kind, body) for _ in range(repeats) for body in bodies for kind in KINDS]
    with progress("requests") as report:
        for number, (kind, body) in enumerate(turns):
            asked = body | {"stream": kind == "streamed"}
            if asked["stream"]:
                asked["stream_options"] = {"include_usage": True}
            found[kind].append(ask(endpoint, bare, asked, kind))
            report(number + 1, len(turns))
    return {kind: rows[WARM_UP:] for kind, rows in found.items()}


def ask(endpoint: httpx.Client, bare: httpx.Client, body: Body, kind: str) -> dict[str, float]:
    """The endpoint's answer, and the same one from the bare deployment."""
    started = perf_counter()
    answer = endpoint.post("/v1/chat/completions", json=body).raise_for_status()
    seconds = {"endpoint": perf_counter() - started}
    if kind == "streamed":
        last = [line for line in answer.text.splitlines() if line.startswith("data: {")][-1]
        usage = json.loads(last.removeprefix("data: "))["usage"]
    else:
        usage = answer.json()["usage"]
    headers = {"content-type": answer.headers["content-type"]}
    bare.put(f"/{kind}", content=answer.content, headers=headers).raise_for_status()
    started = perf_counter()
    bare.post(f"/{kind}", json=body).raise_for_status()
    seconds["bare"] = perf_counter() - started
    return seconds | {"engine": usage["maskahead"]["seconds"]}


def summary(rows: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Milliseconds of one kind of answer; ``adds`` is the endpoint's part beyond Ray's proxy."""
    columns = {name: 1000 * np.array([row[name] for row in rows]) for name in rows[0]}
    around = columns["endpoint"] - columns["engine"]
    parts = {
        "endpoint": columns["endpoint"],
        "around_the_engine": around,
        "ray_proxy": columns["bare"],
        "adds": around - columns["bare"],
    }
    found: dict[str, Any] = {
        name: {f"p{q}": round(float(np.percentile(values, q)), 2) for q in (50, 95)}
        for name, values in parts.items()
    }
    return found | {
        "requests": len(rows),
        "adds_interval": median_interval(parts["adds"].tolist()),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=20, help="Of each bundled task.")
    parser.add_argument("--repeats", type=int, default=2, help="Passes over the problems.")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--most-ms", type=float, default=10.0, help="That may be added at p50.")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    tasks = [problems(task, "heldout", options.problems, 7) for task in ("words", "code")]
    bodies: list[Body] = [
        {
            "messages": [{"role": "user", "content": problem.prompt}],
            "max_tokens": options.max_tokens,
            "seed": 1,
        }
        for pair in zip(*tasks, strict=True)
        for problem in pair
    ]
    config = options.out.with_suffix(".yaml")
    config.write_text(CONFIG)
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    with Served(config) as served, session(ClusterConfig()):
        name = served.model()["id"]
        serve.start(http_options=serve.HTTPOptions(host=HOST, port=port))
        serve.run(Bare.bind())
        with (
            httpx.Client(base_url=served.url, timeout=120) as endpoint,
            httpx.Client(base_url=f"http://{HOST}:{port}", timeout=120) as bare,
        ):
            asked = [body | {"model": name} for body in bodies]
            found = measure(endpoint, bare, asked, options.repeats)
    shown = {kind: summary(rows) for kind, rows in found.items()}
    facts = {"command": sys.argv, "commit": git_commit(), "machine": machine()}
    facts |= {"versions": versions(), "milliseconds": shown, "seconds": found}
    write_whole(options.out, json.dumps(facts, indent=1) + "\n")
    rows = [
        {
            "answers": kind,
            "n": one["requests"],
            "endpoint p50": one["endpoint"]["p50"],
            "Ray's proxy p50": one["ray_proxy"]["p50"],
            "adds p50": one["adds"]["p50"],
            "95 %": one["adds_interval"],
            "adds p95": one["adds"]["p95"],
        }
        for kind, one in shown.items()
    ]
    show_table(f"milliseconds of a request; report: {options.out}", rows)
    return 0 if all(one["adds"]["p50"] <= options.most_ms for one in shown.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
