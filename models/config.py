"""Which target to load and where (``target.*`` of a configuration)."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Dtype = Literal["float32", "bfloat16", "float64"]
Forwards = Literal["auto", "plain", "buckets", "graphs"]
Quantize = Literal["none", "int8"]


class TargetConfig(BaseModel, frozen=True):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    path: str = "sdar-tiny"
    """A checkpoint folder, the name of a bundled target, or a hub id
    (``organisation/name@revision``)."""
    dtype: Dtype = "float32"
    """Of weights and activations."""
    quantize: Quantize = "none"
    """int8 holds the weights of linear maps in int8 (needs torchao): half the bytes of bfloat16,
    and another model than the unquantised one. Not for targets with experts."""
    device: str = "cpu"
    """cpu, cuda, or cuda:N."""
    tp: int = Field(default=1, ge=1)
    """Tensor-parallel ranks."""
    block_size: int | None = Field(default=None, ge=1)
    """Block size L, in tokens, of a checkpoint that does not state its own."""
    force_block_size: bool = False
    """Decode with ``block_size`` even if the checkpoint was made for another one."""
    force_fit: bool = False
    """Load even what is computed not to fit into the memory that is free (to swap, say)."""
    forwards: Forwards = "auto"
    """How forwards run: plain (shapes as they come), buckets (padded to few shapes), graphs (CUDA
    graphs of these, captured once and replayed); auto is graphs on CUDA and plain elsewhere."""
    compile: bool = False
    """Fuse the small operations of a layer with torch.compile: a slow start, fewer kernels."""

    @property
    def precision(self) -> str:
        """What stands beside results: two precisions of a checkpoint are two models."""
        return self.dtype if self.quantize == "none" else f"{self.dtype}, {self.quantize} weights"
