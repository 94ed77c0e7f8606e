"""Moving small tensors to the device without waiting for what runs there."""

import torch
from torch import Tensor


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
