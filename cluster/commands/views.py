"""The commands that show what is there: a checkpoint's facts (info), the runs (ui)."""

from typing import Annotated

import typer

from cluster.configuration import RUNS
from cluster.console import show_table

# What reads checkpoints and the store is imported where it is needed, so that commands start fast.

app = typer.Typer()


@app.command(epilog="Example: maskahead ui --port 5000")
def ui(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 5000,
) -> None:
    """Open the MLflow UI on the store of the sweeps (MLFLOW_TRACKING_URI, else runs/mlflow.db)."""
    from cluster.tracking import tracking_uri
    from cluster.ui import run_ui

    raise typer.Exit(run_ui(tracking_uri(RUNS), port))


@app.command(epilog="Example: maskahead info sdar-tiny")
def info(
    target: Annotated[
        str,
        typer.Argument(metavar="TARGET", help="Checkpoint folder, bundled target, or hub id."),
    ],
    with_digest: Annotated[
        bool, typer.Option("--digest", help="Also digest the weights, which reads all of them.")
    ] = False,
) -> None:
    """Say what a checkpoint is, and on which device, in which dtype and on how many ranks it fits.

    Nothing is loaded, and of a hub id only the small files are fetched."""
    from decoders.options import LARGEST_BUDGET, DecodeOptions
    from models.describe import describe_target
    from models.devices import all_devices
    from models.fitting import fit_rows

    spec, facts = describe_target(target, with_digest)
    show_table(target, [{"fact": key, "value": value} for key, value in facts.items()])
    budgets = (0, DecodeOptions.model_fields["budget"].default, LARGEST_BUDGET)
    fits = fit_rows(spec, all_devices(), budgets)
    title = "Each rank's memory: weights, prefix cache, a forward with D drafts; and where it fits"
    show_table(f"{title}, with how many tokens of prefix", fits)
