"""How far a sweep scales: what one driver can take, measured; trials and nodes, modelled.

``python -m benchmarks.scale --out scale.json`` measures how many runs a second the store takes (a
database, a server), how many calls and rows a second pass through actors, and how long all of this
takes per trial. A small simulation then says, for numbers of nodes and lengths of trials, how busy
groups, driver and store would be, and which of them is full first. Every number of the simulation
is of a model, and says so.
"""

import argparse
import heapq
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ray

from benchmarks.machine import machine, versions
from cluster.config import ClusterConfig
from cluster.console import show_table
from cluster.session import session
from cluster.tracking import ChildRun, DataSource, Tracking

NODES = (1, 4, 16, 64)
GROUPS_A_NODE = 8
TRIAL_SECONDS = (1.0, 10.0, 60.0)
TRIALS = 2000
REPEATS = 5
ROW_BYTES = 20_000
"""About what a live trial's row and its table of problems come to."""


@dataclass(frozen=True)
class Costs:
    """Seconds of one trial's handling."""

    driver: float
    """In the driver, one after the other: a lease and the way of a row to it."""
    store: float
    """In a writer of runs beside the driver, one after the other; 0 where the driver writes."""


@dataclass(frozen=True)
class Outcome:
    """What the model says of one sweep."""

    seconds: float
    groups_busy: float
    driver_busy: float
    store_busy: float
    store_behind: float
    """Seconds in which the store still writes after the last trial."""

    @property
    def full(self) -> str:
        """What more nodes would wait for."""
        shares = {"groups": self.groups_busy, "driver": self.driver_busy}
        limit = max(shares, key=lambda name: shares[name])
        return "store" if self.store_behind > 0.05 * self.seconds else limit


def simulate(trials: int, groups: int, trial_seconds: float, costs: Costs) -> Outcome:
    """A sweep of equal trials on equal groups: a group's next trial begins when the driver has
    taken the last one's row, and a writer follows in the order of the rows."""
    assert trials > 0
    assert groups > 0
    working = [(trial_seconds, group) for group in range(min(groups, trials))]
    heapq.heapify(working)
    started = len(working)
    driver_free = store_free = 0.0
    for _ in range(trials):
        ended, group = heapq.heappop(working)
        driver_free = max(driver_free, ended) + costs.driver
        store_free = max(store_free, driver_free) + costs.store
        if started < trials:
            heapq.heappush(working, (driver_free + trial_seconds, group))
            started += 1
    return Outcome(
        seconds=driver_free,
        groups_busy=trials * trial_seconds / (groups * driver_free),
        driver_busy=trials * costs.driver / driver_free,
        store_busy=min(1.0, trials * costs.store / store_free),
        store_behind=store_free - driver_free,
    )


def model_rows(call: float, store: float, trials: int = TRIALS) -> list[dict[str, Any]]:
    """The simulation over nodes and lengths of trials: as a sweep logs its runs, in the driver
    before the next trial, and as it would be with a writer beside it."""
    in_line, behind = Costs(call + store, 0.0), Costs(call, store)
    return [*rows_of("in line", in_line, trials), *rows_of("behind", behind, trials)]


def rows_of(logging: str, costs: Costs, trials: int) -> list[dict[str, Any]]:
    """The simulation with one way of logging."""
    rows = []
    for nodes in NODES:
        for seconds in TRIAL_SECONDS:
            groups = nodes * GROUPS_A_NODE
            found = simulate(trials, groups, seconds, costs)
            facts = {"logging": logging, "nodes": nodes, "groups": groups, "trial": seconds}
            rows.append({**facts, **asdict(found), "full": found.full, "basis": "model"})
    return rows


def measure_store(tracking: Tracking, count: int) -> float:
    """Seconds that one child run takes: the median over ``count``."""
    parent = tracking.parent(f"scale-{time.time_ns()}", "scale")
    params = {f"knob{n}": n for n in range(16)}
    metrics = {f"metric{n}": float(n) for n in range(20)}
    problems = {"problem": [f"p{n}" for n in range(8)], "correct": [True] * 8}
    data = DataSource("scale", "0", "{}")

    def write(number: int) -> None:
        now = time.time()
        record = {"text": "x" * ROW_BYTES}
        name = f"trial {number}"
        child = ChildRun(name, name, params, metrics, {}, "FINISHED", record, now, now, problems)
        tracking.log_child(parent, child, data, None)

    return median_seconds(write, count)


def median_seconds(work: Callable[[int], object], count: int) -> float:
    """The median over ``count`` calls, after one that warms up."""
    work(-1)
    seconds = []
    for number in range(count):
        started = time.perf_counter()
        work(number)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


class Echo:
    """An actor that hands a row back."""

    def give(self, row: Mapping[str, Any] | None = None) -> Mapping[str, Any] | None:
        return row


RemoteEcho: Any = ray.remote(num_cpus=0)(Echo)


def measure_calls(count: int) -> dict[str, float]:
    """Seconds of a call to an actor, of one that carries a row to and fro, and of one among many
    that are asked for at once; on the connected Ray."""
    echo = RemoteEcho.remote()
    row = {"text": "x" * ROW_BYTES}
    alone = median_seconds(lambda _: ray.get(echo.give.remote()), count)
    carried = median_seconds(lambda _: ray.get(echo.give.remote(row)), count)

    def together(_: int) -> None:
        ray.get([echo.give.remote() for _ in range(count)])

    many = median_seconds(together, REPEATS) / count
    ray.kill(echo)
    return {"call": alone, "call with a row": carried, "call among many": many}


def measured_rows(store: Mapping[str, float], calls: Mapping[str, float]) -> list[dict[str, Any]]:
    """What was measured, as seconds and as how many a second."""
    named = {f"child run, {name}": seconds for name, seconds in store.items()} | dict(calls)
    return [
        {"what": name, "ms": 1000 * seconds, "per second": 1 / seconds, "basis": "measured"}
        for name, seconds in named.items()
    ]


def run(server: str | None, count: int, out: Path | None) -> dict[str, Any]:
    """Measure, model, show and write."""
    store: dict[str, float] = {}
    with TemporaryDirectory() as place:
        local = Tracking(f"sqlite:///{place}/mlflow.db", Path(place) / "artifacts")
        store["SQLite"] = measure_store(local, count)
    if server:
        store["server"] = measure_store(Tracking(server, Path("unused")), count)
    with session(ClusterConfig(num_cpus=1)):
        calls = measure_calls(10 * count)
    call = calls["call"] + calls["call with a row"]
    report: dict[str, Any] = {
        "versions": versions(),
        "machine": machine(),
        "measured": measured_rows(store, calls),
        "trials": TRIALS,
        "model": model_rows(call, store["SQLite"]),
    }
    show_table("measured here", report["measured"])
    show_table("modelled: a sweep by nodes and length of a trial", report["model"])
    if out is not None:
        out.write_text(json.dumps(report, indent=1) + "\n")
    return report


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--server", metavar="URI", help="a tracking server to measure too")
    parser.add_argument("--count", type=int, default=30, help="runs that are written")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the report, as JSON")
    given = parser.parse_args(argv)
    run(given.server, given.count, given.out)


if __name__ == "__main__":
    main()
