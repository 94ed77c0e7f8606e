"""An order model on a GPU: asked in few shapes, which CUDA graphs replay.

Its own kernels take microseconds, launching them takes longer. On a CPU the bare model is faster:
it pads nothing.
"""

import torch
from torch import Tensor

from drafters.features import StaleTensors
from drafters.order_model import Encoded, OrderModel, OrderModelConfig
from models.graphs import GraphCache
from models.transfer import fetch_later

FEWEST_STATES = 8
"""The smallest bucket of drafted states; the others double it."""


class PlacedModel:
    """Answers as an :class:`OrderModel` does: what it is told comes from the host, and its scores
    go there; what it encodes stays on the device. The number of stale states and of drafted states
    behind each are rounded up to powers of two."""

    def __init__(self, model: OrderModel, device: torch.device, *, captures: bool) -> None:
        self.model = model.to(device)
        self.device = device
        self.encodings: GraphCache[Encoded] = GraphCache(device, captures)
        self.scores: GraphCache[Tensor] = GraphCache(device, captures)

    @property
    def config(self) -> OrderModelConfig:
        return self.model.config

    def encode(self, stale: StaleTensors) -> Encoded:
        """What does not depend on the drafted states, of as many stale states as there are."""
        tensors = tuple(vars(stale).values())
        count, padded = len(tensors[0]), _rounded(len(tensors[0]))
        encoded = self.encodings.run(
            padded,
            lambda *given: self.model.encode(StaleTensors(*given)),
            *(_stretched(tensor, padded) for tensor in tensors),
        )
        # The next replay overwrites what this one left.
        return Encoded(*(tensor[:count].clone() for tensor in _known(encoded)))

    def __call__(self, encoded: Encoded, masked_BNL: Tensor) -> Tensor:
        """``log q[B, N, L]`` on the host."""
        states, drafted = masked_BNL.shape[:2]
        key = padded, most = _rounded(states), max(FEWEST_STATES, _rounded(drafted))
        asked = _stretched(_stretched(masked_BNL, padded).transpose(0, 1), most).transpose(0, 1)
        log_q = self.scores.run(
            key,
            lambda masked, *given: self.model(Encoded(*given), masked),
            asked.contiguous(),
            *(_stretched(tensor, padded) for tensor in _known(encoded)),
        )
        (found,) = fetch_later(log_q[:states, :drafted])()
        return torch.from_numpy(found)


def placed_on(device: str, model: OrderModel) -> PlacedModel:
    """The model on a GPU; ``ValueError`` for another device."""
    if not device.startswith("cuda"):
        raise ValueError(f"drafter.device {device!r}: valid are cpu and cuda")
    if not torch.cuda.is_available():
        raise ValueError(f"drafter.device {device!r}: no CUDA device here; valid: cpu")
    return PlacedModel(model, torch.device(device), captures=True)


def _known(encoded: Encoded) -> list[Tensor]:
    """Its tensors; those that a form does not have are its last ones."""
    return [tensor for tensor in encoded if tensor is not None]


def _rounded(count: int) -> int:
    return 1 << (count - 1).bit_length()


def _stretched(tensor: Tensor, count: int) -> Tensor:
    """``tensor`` with its first row repeated behind it, ``count`` rows in all."""
    missing = count - len(tensor)
    if not missing:
        return tensor
    return torch.cat((tensor, tensor[:1].expand(missing, *tensor.shape[1:])))
