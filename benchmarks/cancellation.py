"""What is still decoded for a client that has left, and when its place is free.

Starts ``maskahead serve`` with room for one answer, asks for a long one, and closes the connection:
amid a stream, or while waiting for the whole answer. The engine's own counts in ``/metrics`` tell
what it filled afterwards; they are read while the connection is still open, so they are bounds from
above. ``python -m benchmarks.cancellation --out runs/cancellation.json``; exits with 1 where more
than a block was filled for anybody, or the next client was not answered.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx

from benchmarks.machine import git_commit, machine, versions
from benchmarks.served import Served, engine_samples
from tasks.whole import write_whole

CONFIG = "decode: {method: order, budget: auto, cap: 0.9, max_new_tokens: 128}\nmax_batch: 1\n"
PROMPT = "Tom has 3 apples and buys 4 more. How many apples does he have?"
KINDS = ("stream", "plain")
MOST_SECONDS = 60.0

Row = dict[str, Any]
Counts = dict[str, float]


def trial(http: httpx.Client, model: str, own: Row, kind: str) -> Row:
    """One client that leaves: positions and forwards after that, and seconds until nobody is in
    the batch; then the next client."""
    message = {"role": "user", "content": PROMPT}
    body: Row = {"model": model, "messages": [message], "max_tokens": 400, "maskahead": own}
    before = look(http)
    leaving = HTTPConnection(http.base_url.host, http.base_url.port)
    asked = json.dumps(body | {"stream": kind == "stream"})
    leaving.request("POST", "/v1/chat/completions", asked, {"Content-Type": "application/json"})
    if kind == "stream":
        leaving.getresponse().readline()
    left = look_until(http, lambda seen: seen["commits"] > before["commits"])
    begun = time.monotonic()
    leaving.close()
    after = look_until(http, lambda seen: not seen["running"])
    seconds = time.monotonic() - begun
    following = http.post("/v1/chat/completions", json=body | {"max_tokens": 1})
    counts = {name: int(after[name] - left[name]) for name in ("commits", "rounds")}
    complete = after["finished"] > before["finished"]
    return {**counts, "seconds": seconds, "complete": complete, "next": following.status_code}


def look_until(http: httpx.Client, condition: Callable[[Counts], bool]) -> Counts:
    """The first counts that meet the condition. ``RuntimeError`` when none do within a minute."""
    deadline = time.monotonic() + MOST_SECONDS
    while not condition(seen := look(http)):
        if time.monotonic() > deadline:
            raise RuntimeError(f"nothing has changed for {MOST_SECONDS:g} s: {seen}")
    return seen


def look(http: httpx.Client) -> Counts:
    """The engine's counts of this moment."""
    found = engine_samples(http.get("/metrics").text)
    totals = {n: found[f"maskahead_engine_{n}_total"] for n in ("commits", "rounds", "finished")}
    return totals | {"running": found["maskahead_batch_size"]}


def summary(rows: Sequence[Row], block_size: int) -> Row:
    """Of the trials of one kind."""
    blocks = [row["commits"] / block_size for row in rows]
    seconds = [row["seconds"] for row in rows]
    return {
        "trials": len(rows),
        "blocks_median": round(statistics.median(blocks), 3),
        "blocks_most": round(max(blocks), 3),
        "forwards_most": max(row["rounds"] for row in rows),
        "seconds_median": round(statistics.median(seconds), 4),
        "seconds_most": round(max(seconds), 4),
        "complete": sum(row["complete"] for row in rows),
        "next_answered": sum(row["next"] == httpx.codes.OK for row in rows),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20, help="Of every method and kind.")
    parser.add_argument("--methods", default="order,standard", help="Commas between them.")
    parser.add_argument("--config", type=Path, help="A best.yaml; default: the bundled target.")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    config = options.config
    if config is None:
        config = options.out.with_suffix(".yaml")
        config.write_text(CONFIG)
    found: dict[str, Row] = {}
    with Served(config) as served:
        card = served.model()
        block_size = card["maskahead"]["block_size"]
        with httpx.Client(base_url=served.url, timeout=60) as http:
            for method in options.methods.split(","):
                for kind in KINDS:
                    own = {"method": method, "ignore_stop": True}
                    rows = [trial(http, card["id"], own, kind) for _ in range(options.trials)]
                    found[f"{method}, {kind}"] = summary(rows, block_size)
    facts = {"command": sys.argv, "commit": git_commit(), "machine": machine()}
    facts |= {"versions": versions(), "block_size": block_size, "left": found}
    write_whole(options.out, json.dumps(facts, indent=1) + "\n")
    print(json.dumps(found, indent=1))
    return 0 if all(map(is_well, found.values())) else 1


def is_well(left: Row) -> bool:
    """Whether all trials of a kind went as they should; in none the answer was complete before its
    client left."""
    answered = left["next_answered"] == left["trials"]
    return answered and not left["complete"] and left["blocks_most"] <= 1


if __name__ == "__main__":
    sys.exit(main())
