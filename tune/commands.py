"""The commands of sweeps: sweep, adopt, compare, promote, report sweep."""

import json
from pathlib import Path
from typing import Annotated

import typer

from cluster.configuration import RUNS, load_config
from cluster.console import command_line, log_facts, say, show_table
from cluster.exits import FAILURE
from cluster.short_options import ConfigFile
from tasks.whole import write_whole

# What sweeps, or opens the store, is imported where it is needed, so that commands start fast.

app = typer.Typer()

SweepSettings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any key, as in live.repeats=4; repeatable."),
]
AdoptSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any key, as in train_problems=200 or sweep.live.repeats=4; repeatable.",
    ),
]
OWN_SWEEP = Path("configs/sweep.yaml")
"""The default sweep: in the working folder, where somebody keeps one, else the program's own."""
NAMED = "A run's id or name, a sweep (runs/NAME, stands for its champion), or models:/NAME@ALIAS."


@app.command(epilog="Example: maskahead sweep --config configs/sweep.yaml --name first")
def sweep(
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=f"YAML; keys as in --set. Default: {OWN_SWEEP}, else the bundled target's.",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Results go to runs/NAME. Default: the next number.")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with sweep NAME, or the latest that has not ended."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan, run nothing.")] = False,
    settings: SweepSettings = None,
) -> None:
    """Find a target's best decoding setting: record, replay, live trials, leaderboard."""
    from tune.config import SweepConfig
    from tune.sweep import run_sweep

    if config is None:
        config = OWN_SWEEP if OWN_SWEEP.exists() else Path(__file__).parents[1] / OWN_SWEEP
    plan = load_config(SweepConfig, config, settings or ())
    outcome = run_sweep(plan, name, resume, dry_run, command_line())
    if outcome.folder and outcome.champion is None:
        raise typer.Exit(FAILURE)


@app.command(epilog="Example: maskahead adopt checkpoints/my-sdar --set train_problems=200")
def adopt(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Checkpoint folder, or hub id.")],
    name: Annotated[
        str | None,
        typer.Option(
            help="Results: runs/adopt-NAME, sweep: runs/NAME. Default: the folder's name."
        ),
    ] = None,
    config_file: ConfigFile = None,
    settings: AdoptSettings = None,
) -> None:
    """Make a new target fast: record, train its order model, calibrate, sweep, register."""
    from tune.adopt import AdoptConfig
    from tune.adopt import adopt as adopt_target

    plan = load_config(AdoptConfig, config_file, settings or (), {"target.path": target})
    name = name or Path(target).resolve().name
    if adopt_target(plan, name, command_line(), log_facts).champion is None:
        raise typer.Exit(FAILURE)


@app.command(epilog="Example: maskahead compare runs/1 runs/2 --out compared.json")
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
        out.parent.mkdir(parents=True, exist_ok=True)
        write_whole(out, json.dumps(found, indent=2) + "\n")
        say(f"comparison: {out}")


@app.command(epilog="Example: maskahead promote runs/1 --alias champion")
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
    failed = sum(row.status == "failed" for row in found.rows)
    say(f"{found.source}: {len(found.rows)} trials, {failed} failed")
    for file in files:
        say(f"  {file}")
