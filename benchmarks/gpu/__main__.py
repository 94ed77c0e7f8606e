"""One command for anyone with a GPU; torch alone, no Ray.

python -m benchmarks.gpu --out gpu.json
python -m benchmarks.gpu --parts forwards,shares --copies 1,5,9,21,41 --out forwards.json
python -m benchmarks.gpu --size toy --device cpu --problems 1 --out toy.json   # tries the code
"""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from benchmarks.gpu.parts import PARTS, Session
from benchmarks.gpu.plan import GpuPlan
from benchmarks.gpu.timing import Row
from benchmarks.machine import git_commit, machine, versions
from benchmarks.paired import write_report
from cluster.console import progress, say, show_table
from models.devices import check_device
from models.invalid import one_line

HIDDEN = ("prices", "rows", "places")
"""Columns that stand in the JSON only."""


def main(
    out: Annotated[Path, typer.Option(metavar="FILE", help="The report, as JSON.")],
    parts: Annotated[str, typer.Option(help=f"Of {', '.join(PARTS)}.")] = ",".join(PARTS),
    size: Annotated[str | None, typer.Option(help="sdar-1.7b, sdar-4b, sdar-8b, or toy.")] = None,
    device: Annotated[str | None, typer.Option(help="cuda, cuda:N or cpu.")] = None,
    dtype: Annotated[str | None, typer.Option(help="bfloat16, float32 or float64.")] = None,
    block: Annotated[str | None, typer.Option(help="Block size of the shape.")] = None,
    copies: Annotated[str | None, typer.Option(help="N,N,... block copies, from 1 on.")] = None,
    prefixes: Annotated[str | None, typer.Option(help="N,N,... prefix tokens.")] = None,
    repeats: Annotated[str | None, typer.Option(help="Of every timing.")] = None,
    bandwidth: Annotated[str | None, typer.Option(help="Bytes/s, instead of a copy.")] = None,
    peak: Annotated[str | None, typer.Option(help="FLOP/s, instead of a product.")] = None,
    problems: Annotated[
        str | None, typer.Option(help="Of each task, recorded and decoded.")
    ] = None,
    budgets: Annotated[str | None, typer.Option(help="N,N,... drafts.")] = None,
    max_new_tokens: Annotated[str | None, typer.Option(help="Of an answer.")] = None,
) -> None:
    """Time forwards of a large shape on this device, and what methods would make of them."""
    given = {
        "size": size,
        "device": device,
        "dtype": dtype,
        "block": block,
        "repeats": repeats,
        "bandwidth": bandwidth,
        "peak": peak,
        "problems": problems,
        "max_new_tokens": max_new_tokens,
        **{name: value.split(",") for name, value in _lists(copies, prefixes, budgets) if value},
    }
    chosen = parts.split(",")
    unknown = [name for name in chosen if name not in PARTS]
    if unknown:
        raise typer.BadParameter(f"--parts {unknown[0]!r}: choose from {', '.join(PARTS)}")
    try:
        plan = GpuPlan.model_validate({k: v for k, v in given.items() if v is not None})
        check_device(plan.device)
    except ValidationError as error:
        raise typer.BadParameter(one_line(error)) from error
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    run(plan, chosen, out)
    say(f"report: {out}")


def _lists(copies: str | None, prefixes: str | None, budgets: str | None) -> Any:
    return (("copies", copies), ("prefixes", prefixes), ("budgets", budgets))


def run(plan: GpuPlan, chosen: list[str], out: Path) -> None:
    """Measure the chosen parts, in the order that they need, and print a table of each; the report
    is written after every one."""
    session, found = Session(plan), {}
    for name, part in PARTS.items():
        if name not in chosen:
            continue
        with progress(name) as report:
            found[name] = part(session, report)
        show(name, found[name])
        write_report(described(session) | {"parts": found}, out)


def described(session: Session) -> dict[str, Any]:
    """What the numbers were measured on."""
    return {
        "command": " ".join(sys.argv),
        "commit": git_commit(),
        "machine": machine(),
        "versions": versions(),
        "plan": session.plan.model_dump(),
        "speeds": asdict(session.speeds) if session.speeds else None,
    }


def show(name: str, rows: list[Row]) -> None:
    """A part's table; of spreads the median."""
    if not rows:
        say(f"{name}: not measured here (needs {'two GPUs' if name == 'ranks' else 'a GPU'})")
        return
    shown = [
        {
            key: value["median"] if key == "seconds" and isinstance(value, dict) else value
            for key, value in row.items()
            if key not in HIDDEN
        }
        for row in rows
    ]
    show_table(name if "prices" not in rows[0] else f"{name}: {rows[0]['prices']}", shown)


if __name__ == "__main__":
    typer.run(main)
