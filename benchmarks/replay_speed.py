"""How long ``maskahead replay`` takes for a thousand settings.

    python -m benchmarks.replay_speed --traces runs/words --traces runs/code --out speed.json

Each folder of traces is replayed with the whole grid, one after the other, as the command does it:
starting processes, reading traces and writing rows count. ``seconds`` are the clock's,
``cpu_seconds`` what all processes worked, which tells more on a busy machine.
"""

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Annotated, Any

import typer

from benchmarks.machine import machine, versions
from benchmarks.paired import write_report
from cluster.console import progress, show_table
from decoders.options import ORACLES
from drafters.config import DrafterConfig
from tasks.replay_grid import PREFIX, expand_grid, replay_grid

BUDGETS = list(range(1, 33))


def thousand_settings() -> list[dict[str, Any]]:
    """1,000 different settings of all methods that draft, those of ``order`` the most."""
    products: list[dict[str, Any]] = [
        {"method": "chain", "budget": BUDGETS},
        {"method": list(ORACLES[:2]), "budget": [4, 8, 16, 32]},
        {"method": "wtree", "width": [2, 3, 4], "budget": BUDGETS},
        {"method": "graph", "prune": [0.0, 0.1, 0.3], "budget": BUDGETS},
        {
            "method": "order",
            "hedge": [0.0, 0.3, 0.6, 0.9],
            "gamma": [0.0, 0.01, 0.02, 0.05, 0.1, 0.2],
            "budget": BUDGETS,
        },
    ]
    settings: list[dict[str, Any]] = []
    for each in products:
        settings += expand_grid({"settings": {f"{PREFIX}{k}": v for k, v in each.items()}})
    assert len(settings) == 1000
    return settings


def time_replay(traces: Path, drafter: DrafterConfig, processes: int) -> dict[str, Any]:
    """One folder's seconds, and the counts of its best setting."""
    grid = {"settings": thousand_settings()}
    with TemporaryDirectory() as folder, progress(f"replay of {traces}") as report:
        out = Path(folder) / "rows.jsonl"
        started, busy = perf_counter(), cpu_seconds()
        rows = replay_grid(traces, grid, drafter, out, processes, report)
        seconds, busy = perf_counter() - started, cpu_seconds() - busy
    best = min(rows, key=lambda row: row["nfe"])
    return {
        "traces": str(traces),
        "n": best["n"],
        "settings": len(rows),
        "seconds": round(seconds, 1),
        "cpu_seconds": round(busy, 1),
        "best": {"setting": best["setting"], "nfe_ratio": best["nfe_ratio"]},
    }


def cpu_seconds() -> float:
    """Of this process and those that it has waited for."""
    user, system, user_of_children, system_of_children, _ = os.times()
    return user + system + user_of_children + system_of_children


def main(
    traces: Annotated[
        list[Path], typer.Option(metavar="DIR", help="What maskahead record wrote; several may be.")
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The report, as JSON.")],
    drafter: Annotated[str | None, typer.Option(help="Drafter folder.")] = None,
    processes: Annotated[int, typer.Option(min=1, help="That share the work.")] = 2,
) -> None:
    """Time the replay of a thousand settings."""
    measured = [time_replay(each, DrafterConfig(path=drafter), processes) for each in traces]
    total = {
        "n": sum(each["n"] for each in measured),
        "seconds": round(sum(each["seconds"] for each in measured), 1),
        "cpu_seconds": round(sum(each["cpu_seconds"] for each in measured), 1),
    }
    facts = {"versions": versions(), "machine": machine(), "processes": processes}
    write_report(facts | {"folders": measured, "total": total}, out)
    show_table(str(out), [*({k: m[k] for k in ("traces", *total)} for m in measured), total])


if __name__ == "__main__":
    typer.run(main)
