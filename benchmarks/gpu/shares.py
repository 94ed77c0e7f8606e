"""Where a forward's time goes: attention over prefix and blocks, feed-forward, head, the rest.

Attention is the difference between a forward and the same network without it; feed-forward and head
are timed alone. With graphs, so are these.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.gpu.plan import GpuPlan
from benchmarks.gpu.shapes import aligned, half_filled
from benchmarks.gpu.timing import Row, timed
from models.graphs import GraphCache
from models.target import Target
from models.transformer import Layer, Transformer

PREFIX = 1024
"""Where attention has a goal."""
MOST_ATTENTION = 0.1
"""Goal: of a forward."""
COPIES = (1, 9)


@torch.inference_mode()
def measure_shares(target: Target, mode: str, plan: GpuPlan) -> list[Row]:
    """A row for each number of copies, behind the prefix nearest to ``PREFIX``."""
    prefix = aligned(plan, min(plan.prefixes, key=lambda size: abs(size - PREFIX)))
    target.open_slot(0, prefix)
    target.prefill(0, (1,) * prefix)
    rows = [_shares(target, mode, plan, prefix, copies) for copies in COPIES]
    target.close_slot(0)
    return rows


def _shares(target: Target, mode: str, plan: GpuPlan, prefix: int, copies: int) -> Row:
    model, device = target.model, target.device
    batch = half_filled(plan, copies)
    tokens = batch.tokens_CL.to(device)
    positions = prefix + torch.arange(plan.block_size, device=device).expand(tokens.shape)
    shape = (*tokens.shape, plan.spec.hidden_size)
    hidden = torch.randn(shape, device=device).to(model.dtype)
    rows = hidden.flatten(0, 1)[batch.rows.to(device)]
    graphs: GraphCache[Tensor] = GraphCache(device, captures=mode == "graphs")

    def seconds(name: str, function: Callable[..., Tensor], *inputs: Tensor) -> float:
        return timed(lambda: graphs.run(name, function, *inputs), plan)["median"]

    whole = timed(lambda: target.forward(batch), plan)["median"]
    bare = seconds("bare", lambda t, p: model.hidden(t, p, _unattended), tokens, positions)
    head = seconds("head", model.logits, rows)
    mlp = seconds("mlp", lambda x: _feed_forward(model, x), hidden)
    attention = max(0.0, whole - head - bare)
    return {
        "mode": mode,
        "prefix": prefix,
        "copies": copies,
        "seconds": whole,
        "attention": attention / whole,
        "mlp": mlp / whole,
        "head": head / whole,
        "rest": max(0.0, 1 - (attention + mlp + head) / whole),
        "goal": MOST_ATTENTION,
        "met": attention / whole <= MOST_ATTENTION,
    }


def _unattended(_layer: int, q: Tensor, _k: Tensor, _v: Tensor) -> Tensor:
    return q


def _feed_forward(model: Transformer, x: Tensor) -> Tensor:
    for layer in model.layers:
        assert isinstance(layer, Layer)
        x = layer.mlp(x)
    return x
