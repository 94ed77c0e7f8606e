"""Folders of sets models: ``config.json``, ``model.safetensors`` (half precision) and a card."""

import json
from pathlib import Path

import torch
from pydantic import ValidationError
from safetensors.torch import save_file

from drafters.config import SETS_TYPE
from drafters.folder import fill_model, read_sizes, read_weights
from drafters.sets_model import SetsModel, SetsModelConfig
from models.digests import digest
from models.invalid import one_line

BUNDLED_SETS = Path(__file__).parent / "bundled" / "sets"


def find_sets_model(path: str | None, target_folder: Path) -> Path:
    """The folder named by ``path``, else the one in the target's folder, else the bundled one."""
    if path is not None:
        if not (Path(path) / "config.json").exists():
            raise ValueError(f"drafter.sets {path!r} is not a folder with a config.json")
        return Path(path)
    beside = target_folder / "sets"
    return beside if (beside / "config.json").exists() else BUNDLED_SETS


def load_sets_model(folder: Path) -> SetsModel:
    """The sets model of a drafter folder, in evaluation mode; strict like a target's weights."""
    content = read_sizes(folder, SETS_TYPE)
    try:
        model = SetsModel(SetsModelConfig.model_validate(content))
    except ValidationError as error:
        raise ValueError(f"drafter {folder}: {one_line(error, SetsModelConfig)}") from error
    fill_model(model, {n: t.float() for n, t in read_weights(folder).items()}, folder)
    return model.requires_grad_(False).eval()


def check_target_of(model: SetsModel, folder: Path, target_folder: Path) -> None:
    """Raise ``ValueError`` unless the model learnt the target's hidden states and embeddings."""
    if model.config.target_digest != digest(target_folder):
        raise ValueError(
            f"drafter {folder} was made for another target than {target_folder.name}: it reads "
            "hidden states and embeddings, so it must be calibrated first, as in maskahead train "
            f"sets --config FILE --from {folder}"
        )


def save_sets_model(model: SetsModel, folder: Path) -> None:
    """Write configuration and weights."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(
        {name: t.detach().to(torch.float16).contiguous() for name, t in model.state_dict().items()},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    config = {"model_type": SETS_TYPE, **model.config.model_dump()}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
