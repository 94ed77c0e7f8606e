"""Weight-only int8: linear maps hold int8 weights with one scale per output channel; activations,
embedding, norms and router keep ``target.dtype``. Half the bytes of bf16, and another network: what
is exact is exact among runs of the same int8 weights.

The tensors are torchao's. Scales do not depend on how many ranks share the weights.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from models.config import TargetConfig
from models.ranks import Ranks
from models.spec import TargetSpec
from models.transformer import Transformer

PIECE_NUMBERS = 1 << 21
"""Weights that are quantised at once: the library takes dozens of bytes for each meanwhile."""
SCALE_BYTES = 5
"""Of one output channel: an fp32 scale and an int8 zero point (which is 0)."""


def check_int8(spec: TargetSpec, config: TargetConfig) -> None:
    """Raise ``ValueError`` for a target whose weights cannot be held in int8 here."""
    if config.quantize != "int8":
        return
    if config.dtype == "float64":
        raise ValueError(
            "target.quantize 'int8': its activations are float32 or bfloat16, and target.dtype is "
            "float64"
        )
    if spec.experts is not None:
        raise ValueError(
            "target.quantize 'int8': torchao's tensors cannot be indexed by expert while decoding, "
            f"and this target has {spec.experts.count} experts; valid: none"
        )
    _library()


def _library() -> Any:
    """torchao's quantization module."""
    before = logging.root.manager.disable
    # It warns of every kernel of another machine that it does not find.
    logging.disable(logging.WARNING)
    try:
        from torchao import quantization
    except ImportError as error:
        raise ValueError(
            "target.quantize 'int8' needs torchao: pip install 'maskahead[int8]'"
        ) from error
    finally:
        logging.disable(before)
    return quantization


def becomes_int8(parameter: str) -> bool:
    """Whether a parameter is the weight of a linear map: the projections and the head."""
    return parameter.endswith(("_proj.weight", "lm_head.weight"))


def int8_parameters(model: nn.Module) -> frozenset[str]:
    """The names of those parameters."""
    return frozenset(name for name, _ in model.named_parameters() if becomes_int8(name))


def to_int8(weight: Tensor, shared: Callable[[Tensor], Tensor] | None = None) -> Tensor:
    """``weight[out, in]`` in int8, symmetric, one scale a row. ``shared`` makes the scales of a
    part of the inputs those of the whole rows: the largest over all ranks."""
    library = _library()
    rows = max(1, PIECE_NUMBERS // weight.shape[1])

    def quantized(scales: Sequence[Tensor | None]) -> list[Any]:
        pairs = zip(weight.split(rows), scales, strict=True)
        return [library.Int8Tensor.from_hp(w, library.PerRow(), scale=s) for w, s in pairs]

    made = quantized([None] * len(weight.split(rows)))
    if shared is not None:
        made = quantized(shared(torch.cat([piece.scale for piece in made])).split(rows))
    return library.Int8Tensor(
        torch.cat([piece.qdata for piece in made]),
        torch.cat([piece.scale for piece in made]),
        [1, weight.shape[1]],
        weight.dtype,
        zero_point=torch.cat([piece.zero_point for piece in made]),
    )


def put_int8(model: Transformer, name: str, weight: Tensor, ranks: Ranks | None) -> None:
    """Make the int8 form of ``weight`` the parameter ``name``, beside the rest of the network;
    ``ranks`` are those that hold the other parts of its inputs."""
    module, _, field = name.rpartition(".")
    held = to_int8(weight.detach(), ranks.largest if ranks else None).to(model.norm.weight.device)
    parameter = nn.Parameter(held, requires_grad=False)
    model.get_submodule(module).register_parameter(field, parameter)


def holds_int8(model: nn.Module) -> bool:
    """Whether some of a network's weights are in int8."""
    return any(hasattr(parameter, "qdata") for parameter in model.parameters())


def parameter_bytes(parameter: Tensor) -> int:
    """What a parameter holds in memory."""
    inner: Any = parameter
    if not hasattr(inner, "qdata"):
        return parameter.numel() * parameter.element_size()
    names, _ = inner.__tensor_flatten__()
    return sum(parameter_bytes(getattr(inner, name)) for name in names)


def int8_bytes(shapes: Mapping[str, Sequence[int]], dtype: torch.dtype) -> int:
    """What parameters of these names and ``shapes`` hold once they are quantised."""
    return sum(
        torch.Size(shape).numel() + SCALE_BYTES * shape[0]
        if becomes_int8(name)
        else torch.Size(shape).numel() * dtype.itemsize
        for name, shape in shapes.items()
    )
