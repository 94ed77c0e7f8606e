"""The commands that read the store of runs: compare, promote, report sweep."""

import json
from pathlib import Path
from typing import Annotated

import typer

from cluster.configuration import RUNS
from cluster.console import say, show_table

# What opens the store is imported where it is needed, so that commands start fast.

NAMED = "A run's id or name, a sweep (runs/NAME, stands for its champion), or models:/NAME@ALIAS."


def compare(
    runs: Annotated[list[str], typer.Argument(metavar="RUN", help=NAMED)],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The comparison, as JSON.")
    ] = None,
) -> None:
    """Set runs side by side: the settings that differ, certificates, metrics."""
    from cluster.tracking import open_store
    from tune.compare import compare as compare_runs
    from tune.compare import table_rows

    found = compare_runs(open_store(), runs)
    show_table("what differs, and what came out", table_rows(found))
    if out is not None:
        out.write_text(json.dumps(found, indent=2) + "\n")
        say(f"comparison: {out}")


def promote(
    named: Annotated[
        str, typer.Argument(metavar="RUN_OR_VERSION", help=f"{NAMED} Or NAME/VERSION.")
    ],
    alias: Annotated[str, typer.Option(help="The name that it shall have.")] = "champion",
) -> None:
    """Let an alias name a version, or that of a run: maskahead serve takes the champion."""
    from cluster.tracking import open_store
    from tune.registered import promote as promote_version

    version, before = promote_version(open_store(), named, alias)
    was = f", before it named version {before}" if before else ""
    say(f"models:/{version.model}@{alias} is version {version.number}{was}")
    say(f"  {version.description}, run {version.run_id}")


def report_sweep(
    sweep: Annotated[
        str, typer.Argument(metavar="RUN", help="A sweep's folder, or its run in the store.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of the report. Default: runs/report-NAME."),
    ] = None,
) -> None:
    """Make a sweep's leaderboard and plots again, from its folder or from the store alone."""
    from cluster.tracking import open_store
    from tune.rebuild import read_sweep
    from tune.rebuild import report_sweep as write

    found = read_sweep(sweep, RUNS, open_store)
    files = write(found, out or RUNS / f"report-{Path(sweep).name}")
    failed = sum(not row.done for row in found.rows)
    say(f"{found.source}: {len(found.rows)} trials, {failed} failed")
    for file in files:
        say(f"  {file}")
