"""Weight-only int8: linear maps hold int8 weights with one scale per output channel; activations,
embedding, norms and router keep ``target.dtype``. Half the bytes of bf16, and another network: what
is exact is exact among runs of the same int8 weights.

The tensors are torchao's. Scales do not depend on how many ranks share the weights.
"""

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from models.config import TargetConfig
from models.spec import TargetSpec

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
    made = library.Int8Tensor.from_hp(weight, library.PerRow())
    if shared is None:
        return made
    return library.Int8Tensor.from_hp(weight, library.PerRow(), scale=shared(made.scale))


def quantize_parameter(
    model: nn.Module,
    name: str,
    device: torch.device,
    shared: Callable[[Tensor], Tensor] | None = None,
) -> None:
    """Replace the parameter ``name`` by its int8 form on ``device``."""
    module_name, _, field = name.rpartition(".")
    module = model.get_submodule(module_name)
    weight = to_int8(getattr(module, field).detach(), shared)
    module.register_parameter(field, nn.Parameter(weight.to(device), requires_grad=False))


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


def int8_bytes(shapes: dict[str, tuple[int, ...]], dtype: torch.dtype) -> int:
    """What parameters of these names and ``shapes`` hold once they are quantised."""
    return sum(
        torch.Size(shape).numel() + SCALE_BYTES * shape[0]
        if becomes_int8(name)
        else torch.Size(shape).numel() * dtype.itemsize
        for name, shape in shapes.items()
    )
