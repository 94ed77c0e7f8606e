"""The commands that read recorded traces: replay, calibrate."""

from pathlib import Path
from typing import Annotated

import typer

from cluster.command_options import RowsFile
from cluster.configuration import RunConfig, load_config, read_mapping
from cluster.console import progress, say, show_table

# What reads traces is imported where it is needed, so that commands start fast.

app = typer.Typer()


@app.command(epilog="Example: maskahead replay --traces runs/traces --grid grid.yaml --out r.jsonl")
def replay(
    traces: Annotated[Path, typer.Option(metavar="DIR", help="What maskahead record wrote.")],
    grid: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help=r"YAML, as in settings: {decode.method: \[chain, order], decode.budget: \[4, 8]}.",
        ),
    ],
    out: RowsFile,
    drafter: Annotated[
        str | None, typer.Option(help="Drafter folder, or models:/NAME@ALIAS.")
    ] = None,
    processes: Annotated[int, typer.Option(min=1, help="That share the work.")] = 2,
) -> None:
    """Count exactly what each setting of a grid would have cost; no target is loaded."""
    from tasks.replay_grid import replay_grid, table_rows

    config = load_config(RunConfig, short={"drafter.path": drafter}).drafter
    with progress("replay") as report:
        rows = replay_grid(traces, read_mapping(grid), config, out, processes, report)
    show_table(f"replay of {traces}", table_rows(rows))


@app.command(
    epilog="Example: maskahead calibrate --traces runs/cap1 --traces runs/cap09 --out graph.json"
)
def calibrate(
    traces: Annotated[
        list[Path], typer.Option(metavar="DIR", help="Draft-free traces; one folder for each cap.")
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The graphs, as JSON.")],
    count: Annotated[int, typer.Option(min=1, help="Traces of each folder to look at.")] = 200,
) -> None:
    """Calibrate the draft graphs of method graph from traces (about 50 problems are enough)."""
    from decoders.draft_graph import save_graphs
    from decoders.graph_calibration import calibrate_folders

    graphs = calibrate_folders(traces, count)
    save_graphs(graphs, out)
    say(f"{out}: graphs of cap {', '.join(f'{graph.cap:g}' for graph in graphs.graphs)}")
