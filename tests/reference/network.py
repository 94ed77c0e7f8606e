"""The target by its definition: the whole sequence at once, no cache, one explicit mask.

Reads the weights of a :class:`models.transformer.Transformer` and uses none of its code.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from models.spec import TargetSpec
from models.transformer import Transformer


def block_mask(length: int, block: int) -> Tensor:
    """``[length, length]``: a row sees every column of its own block and of earlier ones."""
    rows = [[column // block <= row // block for column in range(length)] for row in range(length)]
    return torch.tensor(rows, dtype=torch.bool).reshape(length, length)


def normed(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return weight * (x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps))


def rotated(x_THE: Tensor, positions: Sequence[int], theta: float) -> Tensor:
    """Components i and i + E/2 are a plane that turns by ``position * theta ** (-2i / E)``."""
    half = x_THE.shape[-1] // 2
    angles = [[p * theta ** (-i / half) for i in range(half)] for p in positions]
    cos, sin = (
        torch.tensor([[turn(a) for a in row] for row in angles], dtype=x_THE.dtype).unsqueeze(1)
        for turn in (math.cos, math.sin)
    )
    a, b = x_THE[..., :half], x_THE[..., half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def attention(q_THE: Tensor, k_TKE: Tensor, v_TKE: Tensor, mask_TT: Tensor) -> Tensor:
    """Softmax attention head by head under a boolean mask; query head h uses key head h // G."""
    heads, group = q_THE.shape[1], q_THE.shape[1] // k_TKE.shape[1]
    outs = []
    for head in range(heads):
        q, k, v = q_THE[:, head], k_TKE[:, head // group], v_TKE[:, head // group]
        scores = q @ k.T / math.sqrt(q.shape[-1])
        scores = scores.masked_fill(~mask_TT, -math.inf)
        weights = torch.exp(scores - scores.amax(-1, keepdim=True))
        outs.append(weights / weights.sum(-1, keepdim=True) @ v)
    return torch.stack(outs, dim=1)


@torch.no_grad()
def reference_logits(
    model: Transformer,
    tokens: Sequence[int],
    block: int | None = None,
    mask_TT: Tensor | None = None,
    positions: Sequence[int] | None = None,
) -> Tensor:
    """Logits ``[T, V]``, block-causal unless another mask is given."""
    spec, weights = model.spec, dict(model.named_parameters())
    positions = range(len(tokens)) if positions is None else positions
    if mask_TT is None:
        mask_TT = block_mask(len(tokens), block or spec.block_size)
    x = weights["embed_tokens.weight"][torch.tensor(tokens, dtype=torch.long)]
    for layer in range(spec.num_layers):
        own = {
            name.removeprefix(f"layers.{layer}."): weight
            for name, weight in weights.items()
            if name.startswith(f"layers.{layer}.")
        }
        x = x + _attention_layer(x, own, spec, mask_TT, positions)
        y = normed(x, own["post_attention_layernorm.weight"], spec.rms_norm_eps)
        gate = y @ own["mlp.gate_proj.weight"].T
        up = y @ own["mlp.up_proj.weight"].T
        x = x + (gate / (1 + torch.exp(-gate)) * up) @ own["mlp.down_proj.weight"].T
    return normed(x, weights["norm.weight"], spec.rms_norm_eps) @ weights["lm_head.weight"].T


def _attention_layer(
    x: Tensor,
    own: Mapping[str, Tensor],
    spec: TargetSpec,
    mask_TT: Tensor,
    positions: Sequence[int],
) -> Tensor:
    y = normed(x, own["input_layernorm.weight"], spec.rms_norm_eps)
    heads = {}
    for name in "qkv":
        rows = y @ own[f"self_attn.{name}_proj.weight"].T
        heads[name] = rows.reshape(len(rows), -1, spec.head_dim)
    for name in "qk":
        scaled = normed(heads[name], own[f"self_attn.{name}_norm.weight"], spec.rms_norm_eps)
        heads[name] = rotated(scaled, positions, spec.rope_theta)
    out = attention(heads["q"], heads["k"], heads["v"], mask_TT)
    return out.reshape(len(out), -1) @ own["self_attn.o_proj.weight"].T
