"""Filling a network from a checkpoint, strictly, each rank only with its own slices.

All names and shapes are compared before the first byte of a weight is read: nothing missing,
nothing unknown, nothing misshapen, nothing pickled. Weights then go straight from the files to the
device, one tensor at a time, so that a host never holds much more than a rank's share.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from models.checkpoint import DTYPES, find_checkpoint, stored_dtype, target_spec
from models.config import TargetConfig
from models.families.registry import FAMILIES
from models.layout import Piece, Shape, parameter_shapes, tensor_shapes
from models.ranks import Ranks
from models.spec import TargetSpec
from models.tensor_parallel import shard_model
from models.transformer import Transformer

Shards = Mapping[str, int]
"""Of every parameter that is spread over the ranks: the dimension along which it is cut."""


def load_model(config: TargetConfig, ranks: Ranks | None = None) -> Transformer:
    """The network of a checkpoint, or the share of one of its ``ranks``, on its device, in
    evaluation mode, without gradients."""
    folder, spec = find_checkpoint(config.path), target_spec(config)
    with torch.device("meta"):
        model = Transformer(spec)
    shards = shard_model(model, ranks) if ranks is not None and ranks.size > 1 else {}
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(False)
        parameter.data = parameter.data.to(stored_dtype(name, DTYPES[config.dtype]))
    model.to_empty(device=config.device)
    load_weights(model, folder, shards, ranks)
    return model.eval()


def load_weights(
    model: Transformer, folder: Path, shards: Shards | None = None, ranks: Ranks | None = None
) -> None:
    """Fill ``model`` from the safetensors of ``folder``, whatever their sharding.

    Raises ``ValueError`` that names the tensors when one is missing, unknown, doubled or misshapen.
    """
    found = find_tensors(folder)
    pieces = check_tensors(model.spec, folder, found)
    parameters = dict(model.named_parameters())
    by_file: dict[Path, list[Piece]] = {}
    for piece in pieces:
        by_file.setdefault(found[piece.tensor][0], []).append(piece)
    for path, wanted in by_file.items():
        with safe_open(path, framework="pt") as tensors, torch.no_grad():
            for piece in wanted:
                fill(parameters[piece.parameter], piece, tensors, shards or {}, ranks)


def find_tensors(folder: Path) -> dict[str, tuple[Path, Shape]]:
    """Every tensor of a checkpoint: its file and its shape, read from the headers."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ValueError(f"{folder} holds no *.safetensors (pickled weights are not read)")
    found: dict[str, tuple[Path, Shape]] = {}
    for path in files:
        with safe_open(path, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 (not a dict)
                if name in found:
                    raise ValueError(f"{path.name}: {name} stands in an earlier file too")
                found[name] = path, tuple(tensors.get_slice(name).get_shape())
    return found


def check_tensors(
    spec: TargetSpec, folder: Path, found: Mapping[str, tuple[Path, Shape]]
) -> list[Piece]:
    """Where every tensor goes; ``ValueError`` if they are not exactly those of the spec."""
    pieces = list(FAMILIES[spec.family].pieces(spec, found.keys()))
    wanted = tensor_shapes(pieces, parameter_shapes(spec))
    for name, (path, shape) in found.items():
        if name not in wanted:
            raise ValueError(f"{path.name}: unknown tensor {name}")
        if shape != wanted[name]:
            raise ValueError(
                f"{path.name}: {name} has shape {list(shape)}, not {list(wanted[name])}"
            )
    missing = [name for name in wanted if name not in found]
    if missing:
        shown = ", ".join(missing[:3]) + (" ..." if len(missing) > 3 else "")
        raise ValueError(f"{folder}: {len(missing)} tensors are missing: {shown}")
    return pieces


def fill(
    parameter: nn.Parameter, piece: Piece, tensors: Any, shards: Shards, ranks: Ranks | None
) -> None:
    """Read of one tensor what belongs into ``parameter``, which holds this rank's share."""
    dim = shards.get(piece.parameter)
    first = ranks.rank * parameter.shape[dim] if ranks is not None and dim is not None else 0
    place: Tensor = parameter
    if piece.expert is not None:
        local = piece.expert - first
        if not 0 <= local < len(parameter):
            return
        place, dim = parameter[local], None
    index = [slice(None)] * place.dim()
    if dim is not None:
        index[dim] = slice(first, first + place.shape[dim])
    if piece.rows is not None:
        start = piece.rows[0] + (first if dim == 0 else 0)
        index[0] = slice(start, start + place.shape[0])
    source = tensors.get_slice(piece.tensor)
    place.copy_(source[tuple(index)])


def loaded_bytes(parameters: Iterable[Tensor]) -> int:
    """Memory of a rank's share."""
    return sum(p.numel() * p.element_size() for p in parameters)
