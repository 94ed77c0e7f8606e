"""Filling a network from a checkpoint, strictly, each rank only with its own slices.

All names and shapes are compared before the first byte of a weight is read: nothing missing,
nothing unknown, nothing misshapen, nothing pickled. Weights then go straight from the files to the
device, one tensor at a time, so that a host never holds much more than a rank's share.
"""

from collections import Counter
from collections.abc import Container, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from models.checkpoint import DTYPES, find_checkpoint, stored_dtype, target_spec
from models.config import TargetConfig
from models.devices import find_device
from models.families.registry import FAMILIES
from models.fitting import check_room
from models.int8 import check_int8, int8_parameters, put_int8
from models.layout import Piece, parameter_shapes, tensor_shapes
from models.ranks import Ranks
from models.spec import TargetSpec
from models.tensor_files import Stored, TensorReader, find_tensors
from models.tensor_parallel import shard_model
from models.transformer import Transformer

Shards = Mapping[str, int]
"""Of every parameter that is spread over the ranks: the dimension along which it is cut."""


def load_model(config: TargetConfig, ranks: Ranks | None = None) -> Transformer:
    """The network of a checkpoint, or the share of one of its ``ranks``, on its device, in
    evaluation mode, without gradients.

    Raises ``ValueError``, before a hub's weights are fetched or any are read, for a device that is
    not there or has no room.
    """
    spec = target_spec(config)
    check_int8(spec, config)
    check_room(spec, config, find_device(config.device))
    folder = find_checkpoint(config.path)
    with torch.device("meta"):
        model = Transformer(spec)
    shards = shard_model(model, ranks) if ranks is not None and ranks.size > 1 else {}
    to_quantize = int8_parameters(model) if config.quantize == "int8" else ()
    make_room(model, DTYPES[config.dtype], config.device, to_quantize)
    load_weights(model, folder, shards, ranks, to_quantize)
    return model.eval()


def make_room(
    model: Transformer, dtype: torch.dtype, device: str, to_quantize: Container[str] = ()
) -> None:
    """Give every parameter of a network on the meta device uninitialised memory on ``device``, but
    for those ``to_quantize``."""
    for prefix, module in model.named_modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            full_name = f"{prefix}.{name}"
            if full_name in to_quantize:
                continue
            kept = stored_dtype(full_name, dtype)
            # (Module.to_empty would import a compiler for this.)
            memory = torch.empty(tuple(parameter.shape), dtype=kept, device=device)
            module.register_parameter(name, nn.Parameter(memory, requires_grad=False))


def load_weights(
    model: Transformer,
    folder: Path,
    shards: Shards | None = None,
    ranks: Ranks | None = None,
    to_quantize: Container[str] = (),
) -> None:
    """Fill ``model`` from the safetensors of ``folder``, whatever their sharding; parameters
    ``to_quantize`` are read on the CPU, one at a time, and only their int8 form is kept.

    Raises ``ValueError`` that names the tensors when one is missing, unknown, doubled or misshapen.
    """
    found = find_tensors(folder)
    pieces = check_tensors(model.spec, folder, found)
    parameters = dict(model.named_parameters())
    missing = Counter(piece.parameter for piece in pieces)
    by_file: dict[Path, list[Piece]] = {}
    for piece in pieces:
        by_file.setdefault(found[piece.tensor].path, []).append(piece)
    for path, wanted in by_file.items():
        with TensorReader(path) as reader, torch.no_grad():
            for piece in wanted:
                name, stored = piece.parameter, found[piece.tensor]
                if name in to_quantize and parameters[name].is_meta:
                    wide = torch.empty_like(parameters[name], dtype=model.dtype, device="cpu")
                    parameters[name] = nn.Parameter(wide, requires_grad=False)
                fill(parameters[name], piece, stored, reader, shards or {}, ranks)
                missing[name] -= 1
                if name in to_quantize and not missing[name]:
                    by_inputs = ranks is not None and (shards or {}).get(name) == 1
                    put_int8(model, name, parameters.pop(name), ranks if by_inputs else None)
    copy = _repeated_head(model.spec, found)
    if copy is not None:
        _compare(parameters[copy.parameter], copy, found[copy.tensor], shards or {}, ranks)


def _repeated_head(spec: TargetSpec, found: Mapping[str, Stored]) -> Piece | None:
    """The head of a tied checkpoint that was written all the same, as a piece of the embedding."""
    if not spec.tied_embeddings:
        return None
    pieces = FAMILIES[spec.family].pieces(spec.model_copy(update={"tied_embeddings": False}))
    head = next(piece for piece in pieces if piece.parameter == "lm_head.weight")
    return head._replace(parameter="embed_tokens.weight") if head.tensor in found else None


def _compare(
    parameter: nn.Parameter, copy: Piece, stored: Stored, shards: Shards, ranks: Ranks | None
) -> None:
    """Raise ``ValueError`` where a stored head is not the embedding that it is said to be."""
    other = nn.Parameter(torch.empty_like(parameter), requires_grad=False)
    with TensorReader(stored.path) as reader, torch.no_grad():
        fill(other, copy, stored, reader, shards, ranks)
    if not torch.equal(other, parameter):
        raise ValueError(
            f"{stored.path.name}: {copy.tensor} differs from the embedding, and config.json says "
            "that they are one"
        )


def check_tensors(spec: TargetSpec, folder: Path, found: Mapping[str, Stored]) -> list[Piece]:
    """Where every tensor goes; ``ValueError`` if they are not exactly those of the spec."""
    pieces = list(FAMILIES[spec.family].pieces(spec, found.keys()))
    copy = _repeated_head(spec, found)
    wanted = tensor_shapes([*pieces, copy] if copy else pieces, parameter_shapes(spec))
    for name, stored in found.items():
        if name not in wanted:
            raise ValueError(f"{stored.path.name}: unknown tensor {name}")
        if stored.shape != wanted[name]:
            raise ValueError(
                f"{stored.path.name}: {name} has shape {list(stored.shape)}, "
                f"not {list(wanted[name])}"
            )
    missing = [name for name in wanted if name not in found]
    if missing:
        shown = ", ".join(missing[:3]) + (" ..." if len(missing) > 3 else "")
        raise ValueError(f"{folder}: {len(missing)} tensors are missing: {shown}")
    return pieces


def fill(
    parameter: nn.Parameter,
    piece: Piece,
    stored: Stored,
    reader: TensorReader,
    shards: Shards,
    ranks: Ranks | None,
) -> None:
    """Read of one tensor what belongs into ``parameter``, which holds this rank's share."""
    dim = shards.get(piece.parameter)
    first = ranks.rank * parameter.shape[dim] if ranks is not None and dim is not None else 0
    place: Tensor = parameter.detach()
    if piece.expert is not None:
        local = piece.expert - first
        if 0 <= local < len(parameter):
            reader.read(stored, place[local])
        return
    row = (piece.rows[0] if piece.rows else 0) + (first if dim == 0 else 0)
    reader.read(stored, place, row, first if dim == 1 else 0)
