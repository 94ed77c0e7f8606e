"""CUDA graphs: what a function launches is captured once and replayed from then on.

Capture wants fixed shapes, inputs that stay where they are, and no look at the host in between.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from models.transfer import fill_from, to_device

Outputs = TypeVar("Outputs")
WARM_UPS = 2
"""Runs before a capture: kernels are chosen, workspaces made and ranks connected there."""


@dataclass(frozen=True)
class Captured(Generic[Outputs]):
    """A graph, the tensors that it reads, and what it writes."""

    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor, ...]
    outputs: Outputs

    def replay(self, inputs: tuple[Tensor, ...]) -> Outputs:
        for static, given in zip(self.inputs, inputs, strict=True):
            fill_from(static, given)
        self.graph.replay()
        return self.outputs


class GraphCache(Generic[Outputs]):
    """Runs functions of tensors, each captured once under a key; all graphs share their memory.

    What a run returns holds until the next one. Without ``captures`` the functions are just called.
    """

    def __init__(self, device: torch.device, captures: bool) -> None:
        assert device.type == "cuda" or not captures, "graphs are captured on CUDA"
        self.device = device
        self.captures = captures
        self.captured: dict[Hashable, Captured[Outputs]] = {}
        self._memory = torch.cuda.graph_pool_handle() if captures else None
        self._beside = torch.cuda.Stream(device) if captures else None

    def run(self, key: Hashable, function: Callable[..., Outputs], *inputs: Tensor) -> Outputs:
        """``function(*inputs)``, by a replay where ``key`` was met before; the same key must mean
        the same function and shapes."""
        if not self.captures:
            return function(*(to_device(tensor, self.device) for tensor in inputs))
        if key not in self.captured:
            self.captured[key] = self._capture(function, inputs)
        return self.captured[key].replay(inputs)

    def forget(self) -> None:
        """Drop all graphs: what they read or write has moved."""
        self.captured.clear()

    def _capture(
        self, function: Callable[..., Outputs], given: tuple[Tensor, ...]
    ) -> Captured[Outputs]:
        inputs = tuple(to_device(tensor, self.device).clone() for tensor in given)
        beside, current = self._beside, torch.cuda.current_stream(self.device)
        assert beside is not None, "without captures functions are just called"
        beside.wait_stream(current)
        with torch.cuda.stream(beside):
            for _ in range(WARM_UPS):
                function(*inputs)
        current.wait_stream(beside)
        graph = torch.cuda.CUDAGraph()
        # Other threads (of Ray, of NCCL) may meanwhile do what a capture forbids.
        mode = "thread_local"
        with torch.cuda.graph(graph, self._memory, beside, capture_error_mode=mode):
            outputs = function(*inputs)
        return Captured(graph, inputs, outputs)
