"""Which inputs of the order model help: trainings that differ in one of them, side by side.

An input is left out of what the network's input layers read. What the network is built on stays:
its logits start at the stale order, and it adds up the acts of the fills. Every training starts
from the same weights and sees the same batches; ``gain`` is the accuracy of all inputs minus that
without the named one, in points (hundredths). One more training with all inputs and another seed
shows how much of a gain is chance. Short trainings: the differences count, not the level.
``--out`` is written after every training, and the same command goes on behind those in it.

    python -m benchmarks.order_ablation --config configs/train-order.yaml --steps 400 --out a.json
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch import nn

from benchmarks.machine import git_commit, machine, versions
from cluster.configuration import RUNS, load_config
from cluster.console import progress, show_table
from drafters.features import PATH_GROUPS, STATIC_GROUPS
from drafters.order_data import OrderData
from drafters.order_model import OrderModel, OrderModelConfig, build_order_model
from drafters.order_training import OrderTrainingConfig, accuracy_by_depth, train_order_model
from drafters.state_data import concatenate
from models.checkpoint import find_checkpoint
from models.digests import digest
from tasks.recordings import record_all
from tasks.train_order import DEPTHS, TrainOrderConfig, check_recordings, order_data
from tasks.whole import write_whole

ALL = "all inputs"
RESEEDED = "nothing, another seed"
TOKEN_IDS = "token ids"
Report = Callable[[dict], None]
Accuracy = Mapping[str, float]
"""Mean next-commit accuracy over the depths, by held-out recording."""


def variants(config: OrderModelConfig) -> list[str]:
    """Names of the trainings: everything, everything again, then without each input."""
    tokens = [TOKEN_IDS] if config.token_buckets else []
    return [ALL, RESEEDED, *tokens, *STATIC_GROUPS, *PATH_GROUPS]


def build_without(name: str, config: OrderModelConfig) -> OrderModel:
    """A network whose input layers do not read the named input; all else starts alike."""
    torch.manual_seed(int(name == RESEEDED))
    model = build_order_model(config)
    if name == TOKEN_IDS:
        model.tokens = None
    for layer, groups in ((model.static_in, STATIC_GROUPS), (model.path_in, PATH_GROUPS)):
        if name in groups:
            silence(layer, groups[name])
    return model


def silence(layer: nn.Linear, columns: slice) -> None:
    """Let ``layer`` see zeros in some columns of its input."""
    seen = torch.ones(layer.in_features)
    seen[columns] = 0
    layer.register_forward_pre_hook(lambda _, inputs: (inputs[0] * seen,))


def ablate(
    config: OrderModelConfig,
    training: OrderTrainingConfig,
    data: OrderData,
    held_out: Mapping[str, OrderData],
    names: Iterable[str],
    report: Report,
) -> Iterator[tuple[str, Accuracy]]:
    """Train one variant after the other; each comes out when it is measured."""
    for name in names:
        model = build_without(name, config)
        seed = training.seed + (name == RESEEDED)
        own = training.model_copy(update={"seed": seed})
        train_order_model(model, data, own, lambda row, n=name: report({"without": n} | row))
        yield name, {which: mean_accuracy(model, states) for which, states in held_out.items()}


def mean_accuracy(model: OrderModel, data: OrderData) -> float:
    """Over depths 1 to 8, each with the same weight."""
    table = accuracy_by_depth(model, data, DEPTHS)
    return float(np.mean([row["model"] for row in table.values()]))


def rows_of(found: Mapping[str, Accuracy]) -> list[dict[str, Any]]:
    """One row a variant: its accuracy on every recording, and what the input is worth there."""
    return [
        {"without": "-" if name == ALL else name}
        | {which: round(value, 3) for which, value in own.items()}
        | {
            f"{which} gain": round(100 * (found[ALL][which] - value), 1)
            for which, value in own.items()
        }
        for name, own in found.items()
    ]


def load_recordings(
    config: TrainOrderConfig, report: Report
) -> tuple[OrderData, dict[str, OrderData]]:
    """The states to learn from, and the held-out ones by the name of their recording."""
    stores = record_all(config.recordings, config.target, Path(config.traces), report)
    pairs = list(zip(config.recordings, stores, strict=True))
    learnt = [
        order_data(store.load())
        for recording, store in pairs
        if recording.split == "train" and recording.temperature == 0
    ]
    held_out = {r.name: order_data(s.load()) for r, s in pairs if r.split == "heldout"}
    return concatenate(learnt), held_out


class VariantsFile:
    """The finished variants of one ablation, in a JSON file that stands whole after each of them.

    Raises ``ValueError`` if ``path`` holds anything but variants that the same facts decided.
    """

    def __init__(self, path: Path, decided_by: Mapping[str, Any]) -> None:
        self.path = path
        self.decided_by = decided_by
        self.variants: dict[str, dict[str, Any]] = {}
        if path.exists():
            self.variants = self._read()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return rows_of({name: kept["accuracy"] for name, kept in self.variants.items()})

    def add(self, name: str, accuracy: Accuracy, states: int) -> None:
        """Keep one more variant, beside the number of states that it learnt from and the commit
        that trained it: another one may go on."""
        facts = {"states": states, "commit": git_commit()}
        self.variants[name] = {"accuracy": accuracy} | facts
        content = {"decided_by": self.decided_by, "machine": machine(), "versions": versions()}
        content |= {"variants": self.variants, "rows": self.rows}
        write_whole(self.path, json.dumps(content, indent=2) + "\n")

    def _read(self) -> dict[str, dict[str, Any]]:
        other = "choose another file, or delete it"
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
            before, variants = content["decided_by"], content["variants"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"out {self.path} holds no variants to go on from; {other}") from error
        if before != self.decided_by:
            differ = ", ".join(different_keys(before, self.decided_by))
            raise ValueError(f"out {self.path} holds variants of another {differ}; {other}")
        return variants


def different_keys(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Dotted keys of two nested mappings under which they hold different values."""
    found = []
    for key in {**one, **other}:
        mine, its = one.get(key), other.get(key)
        if isinstance(mine, dict) and isinstance(its, dict):
            found += [f"{key}.{inner}" for inner in different_keys(mine, its)]
        elif mine != its:
            found.append(key)
    return found


def deciding(settings: TrainOrderConfig) -> dict[str, Any]:
    """What decides a variant's accuracy, as JSON; code and machine stand beside it."""
    target = settings.target
    return {
        "target": {
            "digest": digest(find_checkpoint(target.path)),
            "precision": target.precision,
            "block_size": target.block_size,
        },
        "recordings": [recording.model_dump(mode="json") for recording in settings.recordings],
        "model": settings.model.model_dump(mode="json"),
        "training": settings.training.model_dump(mode="json", exclude={"log_every"}),
    }


def run_ablation(
    settings: TrainOrderConfig, names: Sequence[str], out: Path, report: Report
) -> list[dict[str, Any]]:
    """Train those of the named variants that ``out`` lacks; the rows of all that it then holds.

    ``report`` gets the training's rows, each with its variant's name under ``without``.
    """
    check_recordings(settings)
    file = VariantsFile(out, deciding(settings))
    missing = [name for name in names if name not in file.variants]
    if missing:
        data, held_out = load_recordings(settings, lambda row: None)
        training = settings.training
        found = ablate(settings.model, training, data, held_out, missing, report)
        for name, accuracy in found:
            file.add(name, accuracy, data.num_states)
    return file.rows


def main(
    config: Annotated[Path, typer.Option(help="As for train order: recordings, model, training.")],
    steps: Annotated[int, typer.Option(min=1, help="Training steps of every variant.")] = 400,
    only: Annotated[
        str | None, typer.Option(help="Inputs to leave out, comma-separated; default: each.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="JSON file for the rows; goes on behind the variants in it.")
    ] = RUNS / "order-ablation.json",
) -> None:
    """Train the order model without each of its inputs and compare held-out accuracy."""
    settings = load_config(TrainOrderConfig, config, [], {"training.steps": steps})
    names = variants(settings.model)
    if only is not None:
        unknown = [name for name in only.split(",") if name not in names[1:]]
        if unknown:
            raise typer.BadParameter(f"{unknown[0]!r}: choose from {', '.join(names[1:])}")
        names = [ALL, *dict.fromkeys(only.split(","))]
    with progress("ablation") as show:

        def report(row: dict) -> None:
            show(names.index(row["without"]) * steps + row["step"], len(names) * steps)

        rows = run_ablation(settings, names, out, report)
    show_table("Inputs of the order model: mean accuracy over depths 1 to 8", rows)


if __name__ == "__main__":
    typer.run(main)
