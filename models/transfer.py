"""Moving small tensors to and from the device without waiting for what runs there.

On a CPU all of it is nothing: tensors are used where they lie.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Arrays = list[NDArray]
Shapes = Sequence[tuple[torch.Size, torch.dtype]]


def to_device(host: Tensor, device: torch.device) -> Tensor:
    """``host`` on ``device``; to a GPU through pinned memory, behind what was launched before."""
    if device.type == "cuda" and host.device.type == "cpu":
        return host.pin_memory().to(device, non_blocking=True)
    return host.to(device)


def fill_from(static: Tensor, source: Tensor) -> None:
    """Overwrite ``static`` with ``source``, as :func:`to_device` moves it."""
    if static.is_cuda and source.device.type == "cpu":
        source = source.pin_memory()
    static.copy_(source, non_blocking=True)


def fetch_later(*tensors: Tensor) -> Callable[[], Arrays]:
    """What reads the tensors on the host: from a GPU by one transfer, which begins now, and which
    only the reading waits for."""
    if not tensors[0].is_cuda:
        arrays = [tensor.numpy() for tensor in tensors]
        return lambda: arrays
    packed = pack(tensors)
    host = torch.empty(packed.shape, dtype=packed.dtype, pin_memory=True)
    host.copy_(packed, non_blocking=True)
    arrived = torch.cuda.Event()
    arrived.record(torch.cuda.current_stream(packed.device))
    shapes = [(tensor.shape, tensor.dtype) for tensor in tensors]

    def read() -> Arrays:
        arrived.synchronize()
        return unpack(host, shapes)

    return read


def pack(tensors: Sequence[Tensor]) -> Tensor:
    """One row of fp64, which holds fp32 numbers and token ids as they are."""
    return torch.cat([tensor.flatten().double() for tensor in tensors])


def unpack(packed: Tensor, shapes: Shapes) -> Arrays:
    """The inverse of :func:`pack`, on the host."""
    parts = packed.split([shape.numel() for shape, _ in shapes])
    return [
        np.ascontiguousarray(part.view(shape).to(dtype).numpy())
        for part, (shape, dtype) in zip(parts, shapes, strict=True)
    ]
