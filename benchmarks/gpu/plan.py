"""What is measured, and on what: one configuration for all parts."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from benchmarks.full_size_load import QWEN3, SIZES
from models.checkpoint import find_checkpoint, read_spec
from models.config import Dtype
from models.spec import TargetSpec

TOY = "toy"
_TOY: dict[str, Any] = {
    "hidden_size": 64,
    "num_layers": 2,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 16,
    "intermediate_size": 128,
    "vocab_size": 512,
    "mask_token_id": 511,
    "stop_token_ids": (510,),
    "pad_token_id": 510,
}
SHAPES: dict[str, dict[str, Any]] = {**SIZES, TOY: _TOY}
"""Sizes by name; all else is as in SDAR's checkpoints."""


class GpuPlan(BaseModel):
    """Settings of all parts; times are medians of ``repeats`` after ``warm_ups``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    size: str = "sdar-8b"
    device: str = "cuda"
    dtype: Dtype = "bfloat16"
    block: int | None = Field(default=None, ge=1)
    """Block size of the shape; by default that of the bundled target, whose traces are replayed."""
    copies: tuple[int, ...] = (1, 2, 3, 5, 9, 13, 17, 21, 33, 41)
    prefixes: tuple[int, ...] = (0, 256, 1024, 4096)
    repeats: int = Field(default=20, ge=1)
    warm_ups: int = Field(default=3, ge=0)
    bandwidth: float | None = Field(default=None, gt=0)
    """Bytes a second; measured by a copy when it is not stated."""
    peak: float | None = Field(default=None, gt=0)
    """Floating-point operations a second in ``dtype``; measured by a product when not stated."""
    target: str = "sdar-tiny"
    """The bundled target of equality, drafting and replayed traces."""
    problems: int = Field(default=8, ge=1)
    """Of each task."""
    tasks: tuple[str, ...] = ("words", "code")
    caps: tuple[float, ...] = (1.0, 0.9)
    budgets: tuple[int, ...] = (4, 8, 20)
    methods: tuple[str, ...] = ("chain", "wtree", "order", "oracle-position")
    """Replayed beside draft-free decoding."""
    max_new_tokens: int = Field(default=256, ge=1)
    draft_roots: int = Field(default=64, ge=1)
    """States behind which drafting is timed."""

    @model_validator(mode="after")
    def _check(self) -> "GpuPlan":
        if self.size not in SHAPES:
            raise ValueError(f"size {self.size!r}: choose from {', '.join(SHAPES)}")
        for name in ("copies", "prefixes", "budgets"):
            if list(getattr(self, name)) != sorted(set(getattr(self, name))):
                raise ValueError(f"{name} {getattr(self, name)}: each once, rising")
        if self.copies[:1] != (1,):
            raise ValueError(f"copies {self.copies}: must begin with 1, which all are compared to")
        return self

    @property
    def on_gpu(self) -> bool:
        return self.device.startswith("cuda")

    @property
    def trace_block_size(self) -> int:
        return read_spec(find_checkpoint(self.target)).block_size

    @property
    def block_size(self) -> int:
        return self.block or self.trace_block_size

    @property
    def spec(self) -> TargetSpec:
        """The shape that is timed, with random weights."""
        spec = TargetSpec.model_validate(QWEN3 | SHAPES[self.size])
        return spec.model_copy(update={"block_size": self.block_size})
