"""The target by its definition: the whole sequence at once, no cache, one explicit mask.

Reads the weights of a :class:`models.transformer.Transformer` and uses none of its code.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from models.spec import Experts, TargetSpec
from models.transformer import Transformer

Kept = dict[int, tuple[Tensor, Tensor]]
"""Keys and values ``[P, K, E]`` of leading positions, by layer."""


def block_mask(length: int, block: int) -> Tensor:
    """``[length, length]``: a row sees every column of its own block and of earlier ones."""
    rows = [[column // block <= row // block for column in range(length)] for row in range(length)]
    return torch.tensor(rows, dtype=torch.bool).reshape(length, length)


def normed(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return weight * (x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps))


def rotated(x_THE: Tensor, positions: Sequence[int], theta: float) -> Tensor:
    """Components i and i + E/2 are a plane that turns by ``position * theta ** (-2i / E)``."""
    half = x_THE.shape[-1] // 2
    # (of a partly rotating head only the leading part comes here)
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
    kept: Kept | None = None,
    seen: Kept | None = None,
) -> Tensor:
    """Logits ``[T, V]`` that predict each position; block-causal, or everything seen by a
    bidirectional target, unless another mask is given.

    ``kept`` stands in for the keys and values of the first positions; ``seen`` takes in, by layer,
    those that were attended to.
    """
    spec, weights = model.spec, dict(model.named_parameters())
    if mask_TT is None and spec.topology == "bidirectional":
        mask_TT = torch.ones(len(tokens), len(tokens), dtype=torch.bool)
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
        before = kept.get(layer) if kept else None
        heads = _heads(x, own, spec, positions, before)
        if seen is not None:
            seen[layer] = heads["k"], heads["v"]
        out = attention(heads["q"], heads["k"], heads["v"], mask_TT)
        x = x + out.reshape(len(out), -1) @ own["self_attn.o_proj.weight"].T
        y = normed(x, own["post_attention_layernorm.weight"], spec.rms_norm_eps)
        if "mlp.router.weight" not in own:
            x = x + feed_forward(y, *(own[f"mlp.{n}_proj.weight"] for n in ("gate", "up", "down")))
        else:
            x = x + torch.stack([_experts(row, own, spec) for row in y])
    head = weights["embed_tokens.weight" if spec.tied_embeddings else "lm_head.weight"]
    logits = normed(x, weights["norm.weight"], spec.rms_norm_eps) @ head.T
    if spec.prediction == "shifted":
        # Row i - 1 predicts position i; the first position has no other row than its own.
        logits = torch.cat((logits[:1], logits[:-1]))
    return logits


def feed_forward(y: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    inner = y @ gate.T
    return (inner / (1 + torch.exp(-inner)) * (y @ up.T)) @ down.T


def chosen_experts(y_D: Tensor, own: Mapping[str, Tensor], experts: Experts) -> dict[int, float]:
    """The experts of one token and their weights, in plain floats."""
    logits = (own["mlp.router.weight"] @ y_D).tolist()
    if experts.router == "softmax":
        top = max(logits)
        raw = [math.exp(x - top) for x in logits]
        scores = [x / sum(raw) for x in raw]
        best = sorted(range(len(scores)), key=lambda e: -scores[e])[: experts.per_token]
    else:
        scores = [1 / (1 + math.exp(-x)) for x in logits]
        biased = [s + b for s, b in zip(scores, own["mlp.router.bias"].tolist(), strict=True)]
        size = len(biased) // experts.groups
        groups = [list(range(g * size, (g + 1) * size)) for g in range(experts.groups)]
        groups.sort(key=lambda g: -sum(sorted((biased[e] for e in g), reverse=True)[:2]))
        allowed = [e for g in groups[: experts.groups_per_token] for e in g]
        best = sorted(allowed, key=lambda e: -biased[e])[: experts.per_token]
    total = sum(scores[e] for e in best) if experts.normalized else 1.0
    return {e: scores[e] / total * experts.scaling for e in best}


def _experts(y_D: Tensor, own: Mapping[str, Tensor], spec: TargetSpec) -> Tensor:
    """One token's feed-forward through its experts, and through the shared one."""
    assert spec.experts is not None
    out = torch.zeros_like(y_D)
    for expert, weight in chosen_experts(y_D, own, spec.experts).items():
        parts = (own[f"mlp.experts.{name}_proj"][expert] for name in ("gate", "up", "down"))
        out = out + weight * feed_forward(y_D, *parts)
    if spec.experts.shared:
        parts = (own[f"mlp.shared.{name}_proj.weight"] for name in ("gate", "up", "down"))
        out = out + feed_forward(y_D, *parts)
    return out


def _heads(
    x: Tensor,
    own: Mapping[str, Tensor],
    spec: TargetSpec,
    positions: Sequence[int],
    before: tuple[Tensor, Tensor] | None,
) -> dict[str, Tensor]:
    """Queries, keys and values of one layer; keys and values begin with those of ``before``."""
    y = normed(x, own["input_layernorm.weight"], spec.rms_norm_eps)
    heads = {}
    for name in "qkv":
        rows = y @ own[f"self_attn.{name}_proj.weight"].T
        rows = rows + own.get(f"self_attn.{name}_proj.bias", torch.zeros(1, dtype=y.dtype))
        heads[name] = rows.reshape(len(rows), -1, spec.head_dim)
    for name in "qk":
        x = heads[name]
        if f"self_attn.{name}_norm.weight" in own:
            x = normed(x, own[f"self_attn.{name}_norm.weight"], spec.rms_norm_eps)
        size = spec.rotary_dim or spec.head_dim
        turned = rotated(x[..., :size], positions, spec.rope_theta)
        heads[name] = torch.cat((turned, x[..., size:]), dim=-1)
    for name, first in zip("kv", before or (), strict=False):
        heads[name] = torch.cat((first, heads[name][len(first) :]))
    return heads
