"""Which drafter to load and where it runs (``drafter.*`` of a configuration)."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from models.config import Dtype


class DrafterConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    path: str | None = None
    """An order model's folder, or for simsd the small model's checkpoint; by default the one in the
    target's folder, else the bundled one."""
    small: str | None = None
    """The small model's checkpoint where ``path`` is an order model's folder."""
    graph: str | None = None
    """A file of calibrated draft graphs; by default the one in the target's folder, else the
    bundled one."""
    placement: Literal["target", "actor"] = "target"
    """In the target's process, or in an actor of its own."""
    ahead: bool = True
    """In an actor of its own, the small model of simsd begins with the next block while the target
    verifies the one before; what turns out otherwise is rolled back."""
    dtype: Dtype = "float32"
    """Of the small model of simsd."""
    device: str = "cpu"
    """Where the order model (in few shapes, by CUDA graphs) or the small model of simsd runs: cpu,
    cuda or cuda:N."""
