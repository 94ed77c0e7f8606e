"""The memory that a target takes, computed from its sizes alone: nothing is read or loaded.

Everything is per rank, in bytes. Weights and prefix cache are exact; what a forward needs for the
moment is an estimate from above, of the largest tensors that are alive at once.
"""

from dataclasses import dataclass
from typing import Any

import torch

from models.checkpoint import DTYPES, stored_dtype
from models.config import Quantize
from models.full_target import MOST_TOKENS
from models.int8 import int8_bytes
from models.pool import FIRST_ROWS
from models.spec import TargetSpec
from models.tensor_parallel import share_shapes

LEAST_PREFIX = FIRST_ROWS
"""Tokens of prefix that every need counts beside the weights: a pool begins with so many."""
SHOWN_TEXT = 1000
"""Tokens of the text that forwards of bidirectional targets are estimated for."""
PLAIN_COPIES = 2
"""Of a forward without drafts: the full block to store, and the next one."""
TABLES = 8
"""``[rows, vocabulary]`` in fp32 that are alive at once while a forward's logits are read: drawing
with top-p sorts them, T = 0 takes a third of that."""
LAYER_WIDTHS = {"hidden": 8, "heads": 16, "inner": 4, "experts": 3}
"""Tensors of each width that are alive at once in one layer, copies and fp32 steps included."""


def weight_bytes(spec: TargetSpec, dtype: str, ranks: int = 1, quantize: Quantize = "none") -> int:
    """Parameters that one of ``ranks`` holds: its even share, and what every rank holds whole."""
    kind = DTYPES[dtype]
    if quantize == "int8":
        # All layers are alike: a target with experts cannot be so held.
        one, two = (
            int8_bytes(share_shapes(spec.model_copy(update={"num_layers": n}), ranks), kind)
            for n in (1, 2)
        )
        return one + (spec.num_layers - 1) * (two - one)
    exact = stored_dtype("router.bias", kind).itemsize
    whole = (spec.num_replicated - spec.num_router_biases) * kind.itemsize
    return spec.num_split // ranks * kind.itemsize + whole + spec.num_router_biases * exact


def cache_bytes(spec: TargetSpec, dtype: str, ranks: int = 1) -> int:
    """Keys and values of one token; an exact cache of bidirectional targets does not exist."""
    if spec.topology == "bidirectional":
        return 0
    heads = spec.num_kv_heads // ranks
    return 2 * spec.num_layers * heads * spec.head_dim * DTYPES[dtype].itemsize


def forward_bytes(spec: TargetSpec, dtype: str, ranks: int = 1, copies: int = PLAIN_COPIES) -> int:
    """What one forward over ``copies`` blocks needs beside weights and cache, on rank 0, which
    reads the logits; for bidirectional targets with a text of ``SHOWN_TEXT`` tokens."""
    tokens = copies * spec.block_size
    if spec.topology == "bidirectional":
        text = SHOWN_TEXT + spec.block_size
        tokens = min(copies, max(1, MOST_TOKENS // text)) * text
    wide = torch.promote_types(DTYPES[dtype], torch.float32).itemsize
    tables = copies * spec.block_size * spec.vocab_size * TABLES * wide
    # Both are counted: an allocator keeps what the layers have given back.
    return layer_bytes(spec, dtype, ranks, tokens) + tables


def layer_bytes(spec: TargetSpec, dtype: str, ranks: int, tokens: int) -> int:
    """What the layers need for the moment over so many tokens."""
    return tokens * _layer_width(spec, ranks) * DTYPES[dtype].itemsize


def _layer_width(spec: TargetSpec, ranks: int) -> int:
    """Numbers that are alive at once for every token in the widest layer."""
    experts, inner = 0, spec.intermediate_size if spec.num_dense_layers else 0
    if spec.experts is not None:
        experts = spec.experts.per_token * spec.hidden_size
        inner = max(inner, spec.experts.shared_size, spec.experts.intermediate_size)
    widths: dict[str, Any] = {
        "hidden": spec.hidden_size,
        "heads": spec.num_heads * spec.head_dim // ranks,
        "inner": inner // ranks,
        "experts": experts,
    }
    return sum(count * widths[name] for name, count in LAYER_WIDTHS.items())


@dataclass(frozen=True)
class Need:
    """What one rank must find free to decode at all, in bytes."""

    weights: int
    prefix: int
    """The cache of ``LEAST_PREFIX`` tokens."""
    forward: int
    """One without drafts, or the prefill of ``SHOWN_TEXT`` tokens, whichever needs more."""

    @property
    def total(self) -> int:
        return self.weights + self.prefix + self.forward


def need(spec: TargetSpec, dtype: str, ranks: int = 1, quantize: Quantize = "none") -> Need:
    """What each of ``ranks`` needs to decode one request without drafts."""
    return Need(
        weight_bytes(spec, dtype, ranks, quantize),
        LEAST_PREFIX * cache_bytes(spec, dtype, ranks),
        max(forward_bytes(spec, dtype, ranks), layer_bytes(spec, dtype, ranks, SHOWN_TEXT)),
    )
