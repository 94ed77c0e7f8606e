"""The commands that make a model: ``maskahead train target | order | sets``, import-order."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cluster.configuration import RUNS, load_config
from cluster.console import command_line, log_facts, say

if TYPE_CHECKING:
    from cluster.training_log import Kind, Train
    from tasks.train_order import TrainOrderConfig
    from tasks.train_sets import TrainSetsConfig

# What trains is imported where it is needed, so that commands start fast.

app = typer.Typer()
train = typer.Typer(no_args_is_help=True, help="Train a bundled target, or a drafter.")
app.add_typer(train, name="train", epilog="Example: maskahead train order --config FILE")

TrainingFile = Annotated[
    Path,
    typer.Option(
        "--config",
        metavar="FILE",
        help="YAML: what to train, on what, into which folder; the same file again goes on there.",
    ),
]
Track = Annotated[
    bool, typer.Option("--track/--no-track", help="Log the training, register the drafter.")
]


@train.command(
    "target", epilog="Example: maskahead train target --config configs/train-sdar-tiny.yaml"
)
def train_target_command(config_file: TrainingFile) -> None:
    """Train a bundled diffusion target from scratch, or go on training it."""
    from tasks.train_target import TrainTargetConfig, train_target

    say(f"target: {train_target(load_config(TrainTargetConfig, config_file), log_facts)}")


@train.command("order", epilog="Example: maskahead train order --config configs/train-order.yaml")
def train_order_command(config_file: TrainingFile, track: Track = True) -> None:
    """Train an order model on recorded traces, or go on training it."""
    from tasks.train_order import TrainOrderConfig, train_order

    config = load_config(TrainOrderConfig, config_file)
    _train_drafter("order", config, partial(train_order, config), track)


@train.command("sets", epilog="Example: maskahead train sets --config configs/train-sets.yaml")
def train_sets_command(
    config_file: TrainingFile,
    start_from: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="DIR", help="A drafter whose input layers are refitted, no others."
        ),
    ] = None,
    track: Track = True,
) -> None:
    """Train a drafter for threshold decoding, or calibrate one for another target."""
    from tasks.train_sets import TrainSetsConfig, train_sets

    short = {"start_from": start_from} if start_from else {}
    config = load_config(TrainSetsConfig, config_file, (), short)
    _train_drafter("sets", config, partial(train_sets, config), track)


def _train_drafter(
    kind: "Kind", config: "TrainOrderConfig | TrainSetsConfig", train: "Train", track: bool
) -> None:
    if not track:
        say(f"drafter: {train(log_facts)}")
        return
    from cluster.tracking import Tracking, tracking_uri
    from cluster.training_log import train_logged

    tracking = Tracking(tracking_uri(RUNS), RUNS / "artifacts")
    out, version = train_logged(kind, config, train, log_facts, tracking, command_line())
    say(f"drafter: {out}, registered as {version.uri}")


@app.command(
    "import-order", epilog="Example: maskahead import-order order_model.pt --out runs/order"
)
def import_order(
    file: Annotated[Path, typer.Argument(metavar="FILE.pt", help="A PyTorch state dict.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="The drafter folder.")],
) -> None:
    """Convert a published order model where its shapes fit; tensors only, no code is run."""
    from drafters.importing import import_order_model

    model = import_order_model(file, out)
    say(f"drafter: {out} ({model.num_parameters:,} parameters)")
    if model.tokens is not None:
        say("its token ids stay hidden: a state dict does not tell whose they are")
