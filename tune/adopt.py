"""``maskahead adopt``: all that a new target needs, in one command that goes on where it was.

Record draft-free traces of training problems, train an order model on them, calibrate the draft
graphs, then sweep with both and register the champion. Each stage leaves its result in the folder,
and a stage whose result is there is not done again.
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, model_validator

from cluster.configuration import RUNS
from cluster.tracking import Tracking
from cluster.training_log import find_registered, train_logged
from decoders.draft_graph import save_graphs
from decoders.graph_calibration import calibrate_folders
from drafters.config import DrafterConfig
from drafters.order_model import OrderModelConfig
from drafters.order_training import OrderTrainingConfig
from models.checkpoint import find_checkpoint
from models.config import TargetConfig
from models.digests import digest
from tasks.bundled import find_task
from tasks.problem import Split
from tasks.recordings import Recording
from tasks.train_order import TrainOrderConfig, check_recordings, train_order
from tasks.whole import write_whole
from tune.check import check
from tune.config import SweepConfig
from tune.folder import CONFIG, check_name, held
from tune.space_config import SpaceConfig
from tune.sweep import SweepOutcome, run_sweep

TRAIN_SEED, HELDOUT_SEED = 3, 5
STATE = "adopted.json"

Report = Callable[[dict], None]
Train = Callable[[TrainOrderConfig, Report], Path]


class AdoptConfig(BaseModel):
    """What to spend on a new target; every default is written here."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: TargetConfig = TargetConfig()
    tasks: tuple[str, ...] = ("words", "code")
    caps: tuple[float, ...] = Field(default=(1.0, 0.9), min_length=1)
    """Commit orders to learn and to calibrate."""
    train_problems: int = Field(default=400, ge=1)
    """Recorded problems of each task and cap, to learn from."""
    heldout_problems: int = Field(default=50, ge=1)
    """Recorded problems of each task and cap, to measure the order model on."""
    model: OrderModelConfig = OrderModelConfig()
    training: OrderTrainingConfig = OrderTrainingConfig()
    sweep: SweepConfig = SweepConfig(space=SpaceConfig(methods=("chain", "graph", "order")))
    """Its target and drafter are the adopted ones."""

    @model_validator(mode="after")
    def _check(self) -> "AdoptConfig":
        for name in self.tasks:
            find_task(name)
        if len(set(self.caps)) < len(self.caps) or not all(0 <= cap <= 1 for cap in self.caps):
            raise ValueError(f"caps {list(self.caps)} must be different numbers from 0 to 1")
        return self


def adopt(config: AdoptConfig, name: str, command: str, report: Report) -> SweepOutcome:
    """Adopt a target into ``runs/adopt-NAME`` and sweep into ``runs/NAME``.

    Raises ``ValueError``, before anything is recorded, for what a later stage would refuse, and
    when the folder belongs to another configuration or another checkpoint.
    """
    runs = RUNS.resolve()
    check_name(name)
    uri = check(config.sweep.model_copy(update={"target": config.target}), runs).uri
    check_recordings(order_config(config, runs / f"adopt-{name}"))
    folder = runs / f"adopt-{name}"
    folder.mkdir(parents=True, exist_ok=True)
    with held(folder):
        claim(folder, config)
        drafter = trained_drafter(config, folder, uri, command, report)
    sweep = config.sweep.model_copy(update={"target": config.target, "drafter": drafter})
    begun = (runs / name / CONFIG).exists()
    return run_sweep(sweep, name, begun, dry_run=False, command=command)


def trained_drafter(
    config: AdoptConfig, folder: Path, uri: str, command: str, report: Report
) -> DrafterConfig:
    """Order model and draft graphs of the target, made where they are not there yet."""
    tracking = Tracking(uri, RUNS / "artifacts")

    def train(ordered: TrainOrderConfig, report: Report) -> Path:
        run = partial(train_order, ordered)
        return train_logged("order", ordered, run, report, tracking, command)[0]

    order = trained_order(config, folder, train, report)
    if find_registered("order", order, tracking) is None:  # a store that was away when it was done
        ordered = order_config(config, folder)
        train_logged("order", ordered, lambda _: order, report, tracking, command)
    graph = calibrated_graph(config, folder, report)
    return DrafterConfig(path=str(order), graph=str(graph))


def claim(folder: Path, config: AdoptConfig) -> None:
    """Take the folder for this configuration and checkpoint, or find that it is."""
    wanted = {
        "target": digest(find_checkpoint(config.target.path)),
        "config": config.model_dump(mode="json", exclude={"sweep"}),
    }
    state = folder / STATE
    if not state.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(state, json.dumps(wanted, indent=2) + "\n")
        return
    found = json.loads(state.read_bytes())
    differing = [key for key in wanted if found.get(key) != wanted[key]]
    if differing:
        raise ValueError(
            f"--name: {folder} was begun with another {' and '.join(differing)}; choose another"
        )


def recordings(config: AdoptConfig) -> tuple[Recording, ...]:
    """What is recorded: training problems to learn from, held-out ones to measure."""
    parts: tuple[tuple[Split, int, int], ...] = (
        ("train", config.train_problems, TRAIN_SEED),
        ("heldout", config.heldout_problems, HELDOUT_SEED),
    )
    return tuple(
        Recording(
            name=f"{split}-cap{cap:g}",
            tasks=config.tasks,
            split=split,
            count=count,
            seed=seed,
            cap=cap,
        )
        for split, count, seed in parts
        for cap in config.caps
    )


def trained_order(config: AdoptConfig, folder: Path, train: Train, report: Report) -> Path:
    """The order model's folder, trained unless its card is there."""
    out = folder / "order"
    if (out / "card.json").exists():
        report({"order": str(out), "kept": True})
        return out
    return train(order_config(config, folder), report)


def order_config(config: AdoptConfig, folder: Path) -> TrainOrderConfig:
    """The order model's training."""
    return TrainOrderConfig(
        out=str(folder / "order"),
        traces=str(folder / "traces"),
        target=config.target,
        recordings=recordings(config),
        model=config.model,
        training=config.training,
    )


def calibrated_graph(config: AdoptConfig, folder: Path, report: Report) -> Path:
    """The file of draft graphs, one of each cap, calibrated unless it is there."""
    path = folder / "graph.json"
    if not path.exists():
        names = [r.name for r in recordings(config) if r.split == "train"]
        save_graphs(calibrate_folders([folder / "traces" / name for name in names]), path)
    report({"graph": str(path)})
    return path
