"""The commands that measure: bench, load, ``maskahead report spot | simsd | ladder``."""

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.load.command import EPILOG, load
from cluster.command_options import Prompts, Target
from cluster.configuration import RUNS, SharedConfig, load_config
from cluster.console import command_line, progress, say, show_table
from cluster.short_options import ConfigFile, Settings

# What measures is imported where it is needed, so that commands start fast.

app = typer.Typer()
report = typer.Typer(no_args_is_help=True, help="Repeat a paper's, or a sweep's, tables and plots.")
app.add_typer(report, name="report", epilog="Example: maskahead report spot --out runs/report-spot")
app.command(epilog=EPILOG)(load)


@app.command(
    epilog="Example: maskahead bench --prompts prompts.jsonl --methods standard,chain,order "
    "--set decode.budget=8 --out bench.json"
)
def bench(
    prompts: Prompts,
    methods: Annotated[str, typer.Option(help="Names with commas; standard always runs too.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The report, as JSON.")],
    target: Target = None,
    repeats: Annotated[int, typer.Option(min=1, help="Passes over the prompts.")] = 3,
    config_file: ConfigFile = None,
    settings: Settings = None,
) -> None:
    """Measure methods side by side: forwards, seconds, equality with draft-free decoding."""
    from benchmarks.paired import BenchPlan, check_out, run_bench, table_rows, write_report
    from cluster.loaded import ray_where_needed

    short = {"target.path": target} if target else {}
    config = load_config(SharedConfig, config_file, settings or (), short)
    names = tuple(name.strip() for name in methods.split(","))
    plan = BenchPlan(
        config.target, config.drafter, config.decode, names, prompts, repeats, command_line()
    )
    check_out(out)
    with ray_where_needed(config), progress("bench") as report:
        measured = run_bench(plan, report)
    write_report(measured, out)
    show_table(f"{config.target.path}, {measured['prompts']['n']} prompts", table_rows(measured))
    say(f"report: {out}")


@report.command(
    "spot", epilog="Example: maskahead report spot --target sdar-tiny --out runs/report-spot"
)
def report_spot(
    out: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Folder of the report; goes on behind what is there."),
    ] = RUNS / "report-spot",
    target: Target = None,
    config_file: ConfigFile = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="As in main.problems=20; repeatable."),
    ] = None,
) -> None:
    """Repeat the tables and figures of SPOT on a target; the same command again goes on."""
    from benchmarks.spot.check import check
    from benchmarks.spot.config import SpotConfig
    from benchmarks.spot.run import run_spot
    from benchmarks.spot.writing import shown
    from cluster.loaded import ray_where_needed
    from cluster.tracking import Tracking, tracking_uri

    short = {"target.path": target} if target else {}
    config = load_config(SpotConfig, config_file, settings or (), short)
    checked, uri = check(config), tracking_uri(RUNS)
    with ray_where_needed(SharedConfig(target=config.target, drafter=config.drafter)):
        tables = run_spot(checked, out, command_line(), Tracking(uri, RUNS / "artifacts"))
    show_table(*shown(tables[0]))


@report.command(
    "simsd",
    epilog="Example: maskahead report simsd --target sdar-tiny --drafter sdar-nano "
    "--set problems=100 --out runs/report-simsd",
)
def report_simsd(
    out: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Folder of the report; goes on behind what is there."),
    ] = RUNS / "report-simsd",
    target: Target = None,
    drafter: Annotated[str | None, typer.Option(help="The small model's checkpoint.")] = None,
    config_file: ConfigFile = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="As in sweep_problems=20; repeatable."),
    ] = None,
) -> None:
    """Measure SimSD on a pair: the mask against exact states, quality, forwards, placements."""
    from contextlib import nullcontext

    from benchmarks.simsd.config import SimsdConfig
    from benchmarks.simsd.run import check, run_simsd
    from cluster.session import ClusterConfig, session

    given = {"target.path": target, "drafter.path": drafter}
    short = {key: value for key, value in given.items() if value}
    config = load_config(SimsdConfig, config_file, settings or (), short)
    check(config)
    with session(ClusterConfig()) if config.placement.problems else nullcontext():
        tables = run_simsd(config, out, command_line())
    kept = ("task", "setting", "n", "accuracy", "difference", "nfe_factor", "acceptance")
    shown = [{name.replace("_", " "): row[name] for name in kept} for row in tables[0].rows]
    show_table(tables[0].title, shown)


@report.command(
    "ladder", epilog="Example: maskahead report ladder --target sdar-tiny --set problems=20"
)
def report_ladder(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the report.")] = RUNS
    / "report-ladder",
    target: Target = None,
    config_file: ConfigFile = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="As in decode.tau=0.95; repeatable."),
    ] = None,
) -> None:
    """Say what each part of SPOT-Sets adds over threshold decoding: forwards, speed, accuracy."""
    from benchmarks.ladder import LadderConfig, run_ladder
    from benchmarks.spot.writing import columns_of
    from cluster.loaded import ray_where_needed

    short = {"target.path": target} if target else {}
    config = load_config(LadderConfig, config_file, settings or (), short)
    with ray_where_needed(SharedConfig(target=config.target, drafter=config.drafter)):
        table = run_ladder(config, out, command_line())
    hidden = ("speed_q25", "speed_q75", "accuracy_low", "accuracy_high", "accepted_per_round")
    columns = [c for c in columns_of(table.rows) if c not in hidden and "difference" not in c]
    show_table(table.title, [{c.replace("_", " "): r.get(c) for c in columns} for r in table.rows])
    say(f"report: {out / 'report.md'}")
