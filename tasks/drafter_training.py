"""What ``maskahead train order`` and ``maskahead train sets`` share: their configuration, which
traces are kept back, and the weights of a training that is not done."""

import json
from collections.abc import Iterable
from hashlib import blake2b
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
from models.digests import digest
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

    @property
    def digest(self) -> str:
        """A short digest of all that decides the weights."""
        decides = self.told()
        del decides["training"]["log_every"]
        told = json.dumps([decides, digest(find_checkpoint(self.target.path))], sort_keys=True)
        return blake2b(told.encode(), digest_size=8).hexdigest()


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


def resume(model: nn.Module, config: TrainDrafterConfig) -> int:
    """Take up the weights of an unfinished training; returns the step at which they were saved, 0
    where there are none. The optimizers' moments start afresh.

    Raises ``ValueError`` for those of another configuration: the card would tell them as its own.
    """
    path = Path(config.out) / PROGRESS
    if not path.exists():
        return 0
    with safe_open(path, framework="pt") as file:
        saved = file.metadata()
    refused = (
        f"out {config.out!r} holds the unfinished training of another {{}}; choose another folder, "
        "or delete it"
    )
    if saved.get("config", config.digest) != config.digest:
        raise ValueError(refused.format("configuration"))
    try:
        model.load_state_dict(load_file(path))
    except RuntimeError as error:
        raise ValueError(refused.format("network")) from error
    return int(saved["step"])


def saving(model: nn.Module, config: TrainDrafterConfig) -> Save:
    """Keeps the weights in the training's folder, for :func:`resume`."""
    out, told = Path(config.out), config.digest

    def save(step: int) -> None:
        out.mkdir(parents=True, exist_ok=True)
        metadata = {"step": str(step), "config": told}
        save_file(model.state_dict(), out / PROGRESS, metadata=metadata)

    return save
