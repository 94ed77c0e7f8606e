"""The commands that decode prompts: decode, eval, record."""

from pathlib import Path
from typing import Annotated

import typer

from cluster.command_options import Prompts, RowsFile
from cluster.configuration import RunConfig, load_config
from cluster.console import command_line, progress, say, show_table
from cluster.short_options import configured

# What loads a target is imported where it is needed, so that commands start fast.

app = typer.Typer()


@app.command(
    epilog="Example: maskahead decode --target sdar-tiny --prompts prompts.jsonl "
    "--out results.jsonl --method order --budget 8"
)
@configured
def decode(
    config: RunConfig,
    prompts: Prompts,
    out: RowsFile,
    trace: Annotated[bool, typer.Option("--trace", help="Add every forward's rounds.")] = False,
) -> None:
    """Decode a file of prompts; the same command again goes on after an interruption."""
    from actors.jobs import decode_file
    from cluster.loaded import ray_where_needed

    remote = config.cluster.is_remote
    with ray_where_needed(config), progress("decode") as report:
        totals = decode_file(
            config.target, config.drafter, config.decode, prompts, out, trace, report, remote
        )
    say(f"{out}: {totals}")


@app.command(
    "eval",
    epilog="Example: maskahead eval --task gsm8k --limit 200 --method order --budget 8 "
    "--out runs/gsm8k",
)
@configured
def evaluate(
    config: RunConfig,
    task: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="words, code (both bundled), gsm8k, math500, mbpp, mbpp-sanitized, humaneval, "
            "mmlu or triviaqa.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Replies and scores; goes on behind the replies there."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Rows of the task as .json, .jsonl or .parquet (or .gz), "
            "or a copy of the hub's folder. Default: the hub.",
        ),
    ] = None,
    shots: Annotated[
        int | None, typer.Option(min=0, help="Solved examples before the question; none: 0.")
    ] = None,
    shots_data: Annotated[
        str | None, typer.Option(metavar="FILE", help="Rows of these examples, where not the hub.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Most problems, the first of a seeded shuffle.")
    ] = None,
    shuffle_seed: Annotated[int | None, typer.Option(help="Of that shuffle.")] = None,
    rescore: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Score its replies again, decode nothing.")
    ] = None,
) -> None:
    """Evaluate a target on a task: replies, scores with intervals, forwards, certificate."""
    from actors.evaluation import decode_task, score_folder, shown
    from cluster.loaded import ray_where_needed
    from tasks.task import Selection

    given = {"limit": limit, "shuffle_seed": shuffle_seed, "shots": shots}
    given |= {"data": data, "shots_data": shots_data}
    selected = {name: value for name, value in given.items() if value is not None}
    either = "give --task NAME and --out DIR, or --rescore DIR alone"
    if rescore is not None and (task or out or selected or config != RunConfig()):
        raise ValueError(either)
    folder = rescore or out
    if folder is None or (rescore is None and task is None):
        raise ValueError(either)
    if task is not None:
        selection = load_config(Selection, short=selected)
        remote = config.cluster.is_remote
        with ray_where_needed(config), progress("decode") as report:
            target, drafter, options = config.target, config.drafter, config.decode
            decode_task(target, drafter, options, task, selection, folder, report, remote)
    with progress("score") as report:
        summary = score_folder(folder, command_line(), report)
    show_table(*shown(summary))
    say(f"samples and scores: {folder}")


@app.command(epilog="Example: maskahead record --prompts prompts.jsonl --out runs/traces --cap 0.9")
@configured
def record(
    config: RunConfig,
    prompts: Prompts,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Folder of traces; goes on behind them.")
    ],
    hidden: Annotated[
        bool, typer.Option("--hidden", help="Keep the target's hidden states, for method sets.")
    ] = False,
) -> None:
    """Record draft-free traces (method standard or threshold) to replay and to learn from."""
    from actors.jobs import record_traces
    from cluster.loaded import ray_where_needed

    remote = config.cluster.is_remote
    with ray_where_needed(config), progress("record") as report:
        totals = record_traces(config.target, config.decode, prompts, out, report, hidden, remote)
    say(f"{out}: {totals}")
