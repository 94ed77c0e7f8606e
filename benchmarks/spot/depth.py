"""How often the order model names the next commit, by depth, beside the stale confidence."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.spot.recording import load_traces
from drafters.bundle import load_order_model
from drafters.order_training import accuracy_by_depth
from tasks.train_order import order_data


@dataclass(frozen=True)
class DepthJob:
    """One cell's next-commit accuracy at depths 1, 2, ... ``depths``."""

    path: Path
    facts: Mapping[str, Any]
    """What decides the result: the traces, the order model, and the fields below."""
    traces: Path
    ids: tuple[str, ...]
    order: Path
    target: Path
    depths: int
    states: int

    def run(self) -> dict[str, Any]:
        data = order_data(load_traces(self.traces, self.ids))
        deepest = min(self.depths, int(data.left_S.max()))
        model = load_order_model(self.order, self.target)
        found = accuracy_by_depth(model, data, range(1, deepest + 1), self.states)
        return {str(depth): facts for depth, facts in found.items()}
