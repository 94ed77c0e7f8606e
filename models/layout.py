"""Which tensor of a checkpoint fills which parameter: the two are not always one to one.

Experts are stacked in one parameter here and stand alone, or stacked, in checkpoints; queries, keys
and values may be fused there.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch

from models.spec import TargetSpec
from models.transformer import Transformer

Shape = tuple[int, ...]


class Piece(NamedTuple):
    """A whole tensor of a checkpoint, or the ``rows`` (first, last + 1) of it, that fills a whole
    parameter, or that of one ``expert`` in it."""

    tensor: str
    parameter: str
    rows: tuple[int, int] | None = None
    expert: int | None = None


def parameter_shapes(spec: TargetSpec) -> dict[str, Shape]:
    """Names and shapes of all parameters, nothing allocated."""
    with torch.device("meta"):
        model = Transformer(spec)
    return {name: tuple(p.shape) for name, p in model.named_parameters()}


def tensor_shapes(pieces: Iterable[Piece], parameters: dict[str, Shape]) -> dict[str, Shape]:
    """The shape that each tensor of a checkpoint must have."""
    found: dict[str, Shape] = {}
    for piece in pieces:
        shape = parameters[piece.parameter]
        if piece.expert is not None:
            shape = shape[1:]
        if piece.rows is not None:
            last = found.get(piece.tensor, (0,))[0]
            shape = (max(last, piece.rows[1]), *shape[1:])
        found[piece.tensor] = shape
    return found


def expert_pieces(parameter: str, spelled: str, count: int) -> Iterator[Piece]:
    """Of a stacked parameter, when each expert is a tensor of its own; ``spelled`` has ``{}`` where
    its number stands."""
    for expert in range(count):
        yield Piece(spelled.format(expert), parameter, expert=expert)


def split_layer(parameter: str) -> tuple[str, str] | None:
    """``layers.3.mlp.up_proj.weight`` as its number and the rest; ``None`` outside the layers."""
    if not parameter.startswith("layers."):
        return None
    _, number, rest = parameter.split(".", 2)
    return number, rest
