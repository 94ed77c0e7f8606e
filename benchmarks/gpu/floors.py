"""What no forward can beat: its bytes at the memory's speed, its operations at the peak.

Counted from the shape: weights are read once (of the embedding only rows), the prefix's keys and
values once; activations, which stay in caches, are left out.
"""

from dataclasses import dataclass

import torch

from benchmarks.gpu.plan import GpuPlan
from benchmarks.gpu.timing import timed
from models.checkpoint import DTYPES
from models.spec import TargetSpec

COPY_BYTES = 1 << 30
PRODUCT_SIZE = 8192
SMALL = 64
"""Divides both on a CPU, where only the code is tried."""


@dataclass(frozen=True)
class Speeds:
    """Of a device; ``stated`` names those that the user gave instead of a measurement."""

    bytes_per_second: float
    flops_per_second: float
    stated: tuple[str, ...] = ()


def measure_speeds(plan: GpuPlan) -> Speeds:
    """A large copy and a large product in the plan's precision."""
    dtype, device = DTYPES[plan.dtype], torch.device(plan.device)
    shrink = 1 if plan.on_gpu else SMALL
    bandwidth, peak = plan.bandwidth, plan.peak
    if bandwidth is None:
        source = torch.zeros(COPY_BYTES // shrink, dtype=torch.uint8, device=device)
        goal = torch.empty_like(source)
        seconds = timed(lambda: goal.copy_(source), plan)["median"]
        bandwidth = 2 * len(source) / seconds
        del source, goal
    if peak is None:
        size = PRODUCT_SIZE // shrink
        left = torch.randn((size, size), device=device).to(dtype)
        seconds = timed(lambda: left @ left, plan)["median"]
        peak = 2 * size**3 / seconds
    stated = tuple(name for name in ("bandwidth", "peak") if getattr(plan, name) is not None)
    return Speeds(bandwidth, peak, stated)


def layer_weights(spec: TargetSpec, per_token: bool = False) -> int:
    """Weights of all layers; ``per_token``: those that one token meets."""
    whole = spec.num_parameters - 2 * spec.vocab_size * spec.hidden_size
    if spec.experts is None or not per_token:
        return whole
    own, layers = spec.experts, spec.num_layers - spec.num_dense_layers
    unmet = own.count - own.per_token
    return whole - layers * unmet * 3 * spec.hidden_size * own.intermediate_size


def forward_bytes(spec: TargetSpec, prefix: int, item: int) -> int:
    """Bytes that a forward reads behind ``prefix`` tokens; ``item`` is the size of a number."""
    head = spec.vocab_size * spec.hidden_size
    cache = 2 * spec.num_layers * spec.num_kv_heads * spec.head_dim * prefix
    return (layer_weights(spec) + head + cache) * item


def forward_flops(spec: TargetSpec, positions: int, rows: int, prefix: int) -> int:
    """Operations of a forward over ``positions``, with logits for ``rows`` of them."""
    met = prefix + spec.block_size
    attention = 4 * spec.num_layers * spec.num_heads * spec.head_dim * met * positions
    head = 2 * spec.vocab_size * spec.hidden_size * rows
    return 2 * layer_weights(spec, per_token=True) * positions + head + attention


@dataclass(frozen=True)
class Floors:
    """Seconds that the memory and the arithmetic of one forward take at least."""

    memory: float
    compute: float

    @property
    def larger(self) -> float:
        return max(self.memory, self.compute)


def floors_of(
    spec: TargetSpec, speeds: Speeds, copies: int, rows: int, prefix: int, dtype: str
) -> Floors:
    """The two floors of a forward over ``copies`` blocks."""
    moved = forward_bytes(spec, prefix, DTYPES[dtype].itemsize)
    done = forward_flops(spec, copies * spec.block_size, rows, prefix)
    return Floors(moved / speeds.bytes_per_second, done / speeds.flops_per_second)
