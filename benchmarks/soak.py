"""Memory of an endpoint under mixed load for minutes: it has to stay flat.

Starts ``maskahead serve`` as its user would, sends short and long, streamed and plain, sampled and
greedy requests, some of which are left in the middle, and reads the resident memory of all its
processes meanwhile. ``python -m benchmarks.soak --minutes 20 --out soak.json``; exits with 1 where
memory grew by more than ``--most-growth`` percent between the first and the last quarter.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

SAMPLE_SECONDS = 5.0
WARM_UP = 0.25
"""Share of the time before anything is compared: caches fill."""
PROMPTS = (
    "Tom has 3 apples and buys 4 more. How many apples does he have?",
    "Write a Python function that adds two numbers.",
    "A train takes 2 hours for 120 km. How fast is it?",
)


def descendants(pid: int) -> list[int]:
    """A process and all below it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        found.append(waiting.pop())
        waiting += children.get(found[-1], [])
    return found


def resident_bytes(pids: Sequence[int]) -> int:
    """Their resident memory, shared pages counted once a process."""
    total = 0
    for pid in pids:
        try:
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except OSError:
            continue
    return total * os.sysconf("SC_PAGE_SIZE")


def replica_of(pids: Sequence[int]) -> list[int]:
    """Those of them that hold the target."""
    found = []
    for pid in pids:
        try:
            title = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if title.startswith((b"ray::ServeReplica", b"ray::TargetRank")):
            found.append(pid)
    return found


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
    async with http.stream("POST", path, json=body) as response:
        async for _ in response.aiter_lines():
            if leaves:
                return "left"
    return str(response.status_code)


async def client(url: str, model: str, until: float, seed: int, counts: Counter[str]) -> None:
    """Requests one after another."""
    draw = random.Random(seed)
    async with httpx.AsyncClient(base_url=url, timeout=120) as http:
        while time.monotonic() < until:
            counts[await ask(http, model, draw)] += 1


async def sample(pid: int, until: float, samples: list[dict[str, float]]) -> None:
    """Memory every few seconds."""
    begun = time.monotonic()
    while time.monotonic() < until:
        pids = descendants(pid)
        samples.append(
            {
                "seconds": round(time.monotonic() - begun, 1),
                "all_bytes": resident_bytes(pids),
                "replica_bytes": resident_bytes(replica_of(pids)),
            }
        )
        await asyncio.sleep(SAMPLE_SECONDS)


def growth(values: Sequence[float]) -> float:
    """By how much the median of the last quarter exceeds that of the first, in percent."""
    quarter = max(1, len(values) // 4)
    first, last = statistics.median(values[:quarter]), statistics.median(values[-quarter:])
    return 100 * (last / first - 1)


async def soak(process: subprocess.Popen[str], url: str, minutes: float, clients: int) -> dict:
    """The report of a running endpoint."""
    async with httpx.AsyncClient(base_url=url, timeout=30) as http:
        for _ in range(600):
            assert process.poll() is None, "the endpoint did not start"
            with suppress(httpx.TransportError):  # not listening yet
                if (await http.get("/readyz")).status_code == 200:
                    break
            await asyncio.sleep(0.5)
        else:
            raise RuntimeError("the endpoint did not become ready within five minutes")
        model = (await http.get("/v1/models")).json()["data"][0]["id"]
    until, counts, samples = time.monotonic() + 60 * minutes, Counter[str](), []
    tasks = [client(url, model, until, seed, counts) for seed in range(clients)]
    await asyncio.gather(sample(process.pid, until, samples), *tasks)
    async with httpx.AsyncClient(base_url=url, timeout=30) as http:
        ready = (await http.get("/readyz")).json()
    warm = samples[int(WARM_UP * len(samples)) :]
    grown = {
        key: round(growth([s[key] for s in warm]), 2) for key in ("all_bytes", "replica_bytes")
    }
    return {"requests": dict(counts), "ready": ready, "growth_percent": grown, "samples": samples}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--config", type=Path, help="A best.yaml; default: the bundled target.")
    parser.add_argument("--most-growth", type=float, default=3.0, help="Percent.")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    config = options.config
    if config is None:
        config = options.out.with_suffix(".yaml")
        config.write_text("decode: {method: chain, budget: 8, cap: 0.9, max_new_tokens: 128}\n")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = ["serve", "--config", str(config), "--port", str(port)]
    process = subprocess.Popen([sys.executable, "-m", "maskahead", *words], text=True)
    try:
        url = f"http://127.0.0.1:{port}"
        report = asyncio.run(soak(process, url, options.minutes, options.clients))
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(120)
    report |= {"command": sys.argv, "exit_code": code}
    options.out.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps({key: report[key] for key in report if key != "samples"}))
    flat = max(report["growth_percent"].values()) <= options.most_growth
    idle = (report["ready"].get("running"), report["ready"].get("waiting")) == (0, 0)
    return 0 if flat and idle and code == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
