"""Which drafter to load and where it runs (``drafter.*`` of a configuration)."""

from typing import Literal

from pydantic import BaseModel, ConfigDict


class DrafterConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    path: str | None = None
    """An order model's folder; by default the one in the target's folder, else the bundled one."""
    graph: str | None = None
    """A file of calibrated draft graphs; by default the one in the target's folder, else the
    bundled one."""
    placement: Literal["target", "actor"] = "target"
    """In the target's process, or in an actor of its own."""
    device: str = "cpu"
    """Where the order model runs: cpu, cuda or cuda:N (in few shapes, by CUDA graphs)."""
