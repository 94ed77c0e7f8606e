"""What ``maskahead train order`` and ``maskahead train sets`` share: their configuration, which
traces are kept back, and the weights of a training that is not done."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from decoders.trace import Trace
from drafters.features import MAX_BLOCK
from drafters.training import Save
from models.checkpoint import find_checkpoint, target_spec
from models.config import TargetConfig
from tasks.recordings import Recording

PROGRESS = "progress.safetensors"
KEPT_BACK = 20
"""One training trace of so many is not learnt from: temperatures are fitted on it."""


class TrainDrafterConfig(BaseModel):
    """What to record of which target; recordings of held-out problems measure."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    out: str
    traces: str
    """Folder of the recordings, which are made where they are missing."""
    target: TargetConfig = TargetConfig()
    recordings: tuple[Recording, ...]

    def told(self) -> dict[str, Any]:
        """For a card: without this machine's folders."""
        name = find_checkpoint(self.target.path).name
        target = self.target.model_copy(update={"path": name})
        return self.model_copy(update={"target": target}).model_dump(exclude={"out", "traces"})


def check_learnable(config: TrainDrafterConfig, drafter: str) -> None:
    """Raise ``ValueError`` for recordings, or a target, that no ``drafter`` can learn from."""
    names = [recording.name for recording in config.recordings]
    if len(set(names)) < len(names):
        raise ValueError(f"recordings: names {names} must each be there once")
    block = target_spec(config.target).block_size
    if not 2 <= block <= MAX_BLOCK:
        raise ValueError(
            f"target.path {config.target.path!r} has blocks of {block}; {drafter} needs blocks of "
            f"2 to {MAX_BLOCK}"
        )
    for recording in config.recordings:
        if recording.split == "train" and recording.count * len(recording.tasks) < 2:
            raise ValueError(f"recordings.{recording.name}: at least 2 problems are needed")


def split_traces(traces: Iterable[Trace]) -> tuple[list[Trace], list[Trace]]:
    """What is learnt from, and what is kept back."""
    found = list(traces)
    learnt = [trace for index, trace in enumerate(found) if index % KEPT_BACK]
    return learnt, found[::KEPT_BACK]


def padded(rows: np.ndarray, width: int, empty: float) -> np.ndarray:
    """The first ``width`` columns, as many as there are."""
    out = np.full((len(rows), width), empty, dtype=rows.dtype)
    out[:, : rows.shape[1]] = rows[:, :width]
    return out


def resume(model: nn.Module, out: Path) -> int:
    """Take up saved weights; returns the step at which they were saved, 0 where there are none. The
    optimizers' moments start afresh."""
    path = out / PROGRESS
    if not path.exists():
        return 0
    try:
        model.load_state_dict(load_file(path))
    except RuntimeError as error:
        raise ValueError(
            f"out {str(out)!r} holds the unfinished training of another network; choose another "
            "folder, or delete it"
        ) from error
    with safe_open(path, framework="pt") as file:
        return int(file.metadata()["step"])


def saving(model: nn.Module, out: Path) -> Save:
    """Keeps the weights in ``out``, for :func:`resume`."""

    def save(step: int) -> None:
        out.mkdir(parents=True, exist_ok=True)
        save_file(model.state_dict(), out / PROGRESS, metadata={"step": str(step)})

    return save
