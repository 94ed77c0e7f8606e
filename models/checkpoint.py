"""Reading and writing checkpoint folders, strictly: nothing missing, nothing unknown, no pickle."""

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors.torch import save_file
from torch import Tensor

from models.config import TargetConfig
from models.families.fields import stated_block_size
from models.families.registry import FAMILIES, family_of
from models.invalid import one_line
from models.layout import Piece
from models.spec import TargetSpec
from models.transformer import Transformer

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")
BUNDLED = Path(__file__).parent / "bundled"


SMALL_FILES = ("*.json", "*.jinja", "merges.txt")
HUB_FILES = (*SMALL_FILES, "*.safetensors")
"""What is read of a hub repository: never pickled weights, never code."""


def find_checkpoint(path_or_name: str, weights: bool = True) -> Path:
    """The folder of a checkpoint: a path, the name of a bundled target, or a hub id
    (``organisation/name``, or ``organisation/name@revision``), which is downloaded once, without
    ``weights`` only what says what they are."""
    folder = Path(path_or_name)
    if (folder / "config.json").exists():
        return folder
    if (BUNDLED / path_or_name / "config.json").exists():
        return BUNDLED / path_or_name
    if HUB_ID.fullmatch(path_or_name) and not folder.exists():
        return _from_hub(path_or_name, HUB_FILES if weights else SMALL_FILES)
    bundled = sorted(p.parent.name for p in BUNDLED.glob("*/config.json"))
    raise ValueError(
        f"target.path {path_or_name!r} is neither a folder with a config.json nor a bundled "
        f"target ({', '.join(bundled)}) nor a hub id (organisation/name)"
    )


@lru_cache  # a process asks for its checkpoint again and again, and the hub would be asked too
def _from_hub(name: str, files: tuple[str, ...]) -> Path:
    """The local copy of a hub repository (kept by ``huggingface_hub``; with ``HF_HUB_OFFLINE=1``
    only what was downloaded before is found)."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    repository, _, revision = name.partition("@")
    try:
        found = snapshot_download(repository, revision=revision or None, allow_patterns=[*files])
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        why = " ".join(str(error).split())
        raise ValueError(f"target.path {name!r}: not a folder, and from the hub: {why}") from error
    return Path(found)


def read_spec(folder: Path, block_size: int | None = None, *, force: bool = False) -> TargetSpec:
    """The spec of the checkpoint in ``folder``, with the user's ``block_size`` where one is given.

    Raises ``ValueError`` for an unknown family, and for a block size other than that of a
    checkpoint which states one, unless ``force`` is set.
    """
    name = checkpoint_name(folder)
    config = _read_object(folder / "config.json", name)
    generation = folder / "generation_config.json"
    generation_config = _read_object(generation, name) if generation.exists() else {}
    try:
        spec = family_of(config, name).read_spec(config, generation_config, name)
    except ValidationError as error:
        raise ValueError(f"config.json of {name}: {one_line(error)}") from error
    if block_size in (None, spec.block_size):
        return spec
    if stated_block_size(config, name) and not force:
        raise ValueError(
            f"target.block_size {block_size}: {name} was made for blocks of {spec.block_size} "
            "(target.force_block_size true decodes all the same)"
        )
    return TargetSpec.model_validate(spec.model_dump() | {"block_size": block_size})


def _read_object(path: Path, name: str) -> dict[str, Any]:
    """A JSON object; ``ValueError`` names the file that holds none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path.name} of {name}: no JSON ({error})") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path.name} of {name}: no JSON object")
    return found


def checkpoint_name(folder: Path) -> str:
    """What a checkpoint is called: its folder's name, or its repository's where the hub's local
    copies lie in folders named after commits."""
    folder = folder.resolve()
    if folder.parent.name == "snapshots":
        return folder.parent.parent.name.rsplit("--", 1)[-1]
    return folder.name


def target_spec(config: TargetConfig) -> TargetSpec:
    """The spec that a configuration asks for."""
    folder = find_checkpoint(config.path, weights=False)
    return read_spec(folder, config.block_size, force=config.force_block_size)


def save_checkpoint(model: Transformer, folder: Path, dtype: str = "bfloat16") -> None:
    """Write weights and configuration in the family's own layout."""
    family = FAMILIES[model.spec.family]
    folder.mkdir(parents=True, exist_ok=True)
    parameters = dict(model.named_parameters())
    tensors: dict[str, list[Tensor]] = {}
    for piece in family.pieces(model.spec):
        tensors.setdefault(piece.tensor, []).append(_part(parameters[piece.parameter], piece))
    whole = {
        # Fused tensors are yielded in the order of their rows; a router's bias stays exact.
        name: torch.cat(parts).to("cpu", stored_dtype(name, DTYPES[dtype])).contiguous()
        for name, parts in tensors.items()
    }
    save_file(whole, folder / "model.safetensors", metadata={"format": "pt"})
    config, generation_config = family.write_config(model.spec, dtype)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "generation_config.json").write_text(json.dumps(generation_config, indent=2) + "\n")


def _part(parameter: Tensor, piece: Piece) -> Tensor:
    found = parameter.detach()
    return found if piece.expert is None else found[piece.expert]


def stored_dtype(name: str, dtype: torch.dtype) -> torch.dtype:
    """What decides an expert's choice is kept in at least fp32."""
    exact = name.endswith(("expert_bias", "router.bias"))
    return torch.promote_types(dtype, torch.float32) if exact else dtype
