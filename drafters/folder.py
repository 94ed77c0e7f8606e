"""Reading drafter folders, strictly: ``config.json`` and ``model.safetensors``."""

from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from drafters.config import read_config


def read_sizes(folder: Path, kind: str) -> dict[str, Any]:
    """The configuration without its ``model_type``, which must be ``kind``."""
    config = read_config(folder)
    found = config.pop("model_type", None)
    if found != kind:
        raise ValueError(f"drafter {folder}: model_type {found!r} is not {kind!r}")
    return config


def read_weights(folder: Path) -> dict[str, Tensor]:
    """The tensors of a drafter folder; ``ValueError`` for a file that is missing or damaged."""
    weights = folder / "model.safetensors"
    if not weights.exists():
        raise ValueError(f"drafter {folder} holds no model.safetensors")
    try:
        return load_file(weights)
    except SafetensorError as error:
        raise ValueError(f"drafter {weights} is no readable safetensors file: {error}") from error


def fill_model(model: nn.Module, tensors: dict[str, Tensor], folder: Path) -> None:
    """Load ``tensors`` into the model; ``ValueError`` unless they are exactly its own."""
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:  # names every tensor that is missing, unknown or misshapen
        told = " ".join(str(error).split())
        raise ValueError(f"drafter {folder / 'model.safetensors'}: {told}") from error
