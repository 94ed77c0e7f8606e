"""Drafter folders: ``config.json``, ``model.safetensors`` and a card."""

import json
from pathlib import Path

from pydantic import ValidationError
from safetensors.torch import save_file

from drafters.config import ORDER_TYPE
from drafters.folder import fill_model, read_sizes, read_weights
from drafters.order_model import OrderModel, OrderModelConfig, build_order_model
from models.invalid import one_line
from models.text import vocabulary_digest

BUNDLED_ORDER = Path(__file__).parent / "bundled" / "order"


def find_order_model(path: str | None, target_folder: Path) -> Path:
    """The folder named by ``path``, else the one in the target's folder, else the bundled one."""
    if path is not None:
        if not (Path(path) / "config.json").exists():
            raise ValueError(f"drafter.path {path!r} is not a folder with a config.json")
        return Path(path)
    beside = target_folder / "order"
    return beside if (beside / "config.json").exists() else BUNDLED_ORDER


def load_order_model(folder: Path, target_folder: Path | None) -> OrderModel:
    """The order model of a drafter folder, in evaluation mode; strict like a target's weights.

    It reads token ids if it learnt those of the target in ``target_folder``; of no target, none.
    A configuration without ``token_buckets`` is of a time when no model read ids.
    """
    config = {"token_buckets": 0} | read_sizes(folder, ORDER_TYPE)
    try:
        model = build_order_model(OrderModelConfig.model_validate(config))
    except ValidationError as error:
        raise ValueError(f"drafter {folder}: {one_line(error, OrderModelConfig)}") from error
    fill_model(model, read_weights(folder), folder)
    learnt = model.config.vocabulary
    model.reads_tokens = (
        bool(learnt) and target_folder is not None and learnt == vocabulary_digest(target_folder)
    )
    return model.requires_grad_(False).eval()


def save_order_model(model: OrderModel, folder: Path) -> None:
    """Write configuration and weights."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(
        {name: tensor.detach().contiguous() for name, tensor in model.state_dict().items()},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    config = {"model_type": ORDER_TYPE, **model.config.model_dump()}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
