"""The token embeddings of a checkpoint, without its network: what some drafters read."""

from pathlib import Path

import torch
from torch import Tensor

from models.families.registry import FAMILIES
from models.spec import TargetSpec
from models.tensor_files import TensorReader, find_tensors

PARAMETER = "embed_tokens.weight"


def read_embeddings(folder: Path, spec: TargetSpec) -> Tensor:
    """Embeddings ``[V, H]`` of the checkpoint in ``folder``, in fp32 on the CPU."""
    found = find_tensors(folder)
    pieces = FAMILIES[spec.family].pieces(spec, found.keys())
    named = [piece.tensor for piece in pieces if piece.parameter == PARAMETER]
    if not named or named[0] not in found:
        raise ValueError(f"{folder}: no tensor holds the token embeddings")
    stored = found[named[0]]
    wanted = (spec.vocab_size, spec.hidden_size)
    if stored.shape != wanted:
        raise ValueError(
            f"{stored.path.name}: {named[0]} has shape {list(stored.shape)}, not {list(wanted)}"
        )
    place = torch.empty(wanted)
    with TensorReader(stored.path) as reader:
        reader.read(stored, place)
    return place
