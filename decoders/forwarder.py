"""What the decode loop needs of a target, on one rank or on several."""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from models.spec import TargetSpec
from models.target import CopyBatch


class Forwarder(Protocol):
    """A target whose slots hold the prefixes of the requests under way."""

    spec: TargetSpec

    @property
    def placement(self) -> tuple[str, ...]: ...
    def open_slot(self, slot: int, length: int = 0, refresh: int = 0) -> None: ...
    def close_slot(self, slot: int) -> None: ...
    def prefill(self, slot: int, tokens: Sequence[int]) -> None: ...
    def forward(self, batch: CopyBatch) -> Tensor: ...
    def forward_with_hidden(self, batch: CopyBatch) -> tuple[Tensor, Tensor]: ...
    def adopt(self, slot: int, index: int) -> None: ...
