"""The block-causal decoder network (Qwen3's shape: RMSNorm, GQA with q/k norm, RoPE, SwiGLU).

What attends to what is not decided here: every use (prefill, root + drafts over a cached prefix,
the doubled training sequence) passes its own ``attend`` function.

Shapes: D hidden size, H heads, K key/value heads, E head dimension, V vocabulary; leading
dimensions ``...`` are whatever the caller uses, tokens last.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.spec import TargetSpec

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""``attend(layer, q[...,H,E], k[...,K,E], v[...,K,E]) -> out[...,H,E]``"""


class RMSNorm(nn.Module):
    """Root-mean-square norm, computed in at least fp32 and scaled in the input's dtype."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x if x.dtype == torch.float64 else x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


def rotary_tables(positions: Tensor, spec: TargetSpec, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines ``[..., 1, E]`` of integer ``positions[...]``, made in at least fp32."""
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    exponents = torch.arange(0, spec.head_dim, 2, device=positions.device, dtype=wide)
    frequencies = spec.rope_theta ** (-exponents / spec.head_dim)
    angles = positions[..., None].to(wide) * frequencies
    angles = torch.cat((angles, angles), dim=-1).unsqueeze(-2)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply rotary positions to ``x[..., heads, E]`` (half rotation)."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Attention(nn.Module):
    """Projections of one attention layer; the head counts follow from the weights it holds."""

    def __init__(self, spec: TargetSpec) -> None:
        super().__init__()
        self.head_dim = spec.head_dim
        query, key = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
        self.q_proj = nn.Linear(spec.hidden_size, query, bias=False)
        self.k_proj = nn.Linear(spec.hidden_size, key, bias=False)
        self.v_proj = nn.Linear(spec.hidden_size, key, bias=False)
        self.o_proj = nn.Linear(query, spec.hidden_size, bias=False)
        self.q_norm = RMSNorm(spec.head_dim, spec.rms_norm_eps)
        self.k_norm = RMSNorm(spec.head_dim, spec.rms_norm_eps)

    def forward(
        self, x: Tensor, tables: tuple[Tensor, Tensor], layer: int, attend: Attend
    ) -> Tensor:
        heads = (*x.shape[:-1], -1, self.head_dim)
        q = rotate(self.q_norm(self.q_proj(x).view(heads)), *tables)
        k = rotate(self.k_norm(self.k_proj(x).view(heads)), *tables)
        v = self.v_proj(x).view(heads)
        return self.o_proj(attend(layer, q, k, v).flatten(-2))


class MLP(nn.Module):
    """SwiGLU feed-forward."""

    def __init__(self, spec: TargetSpec) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(spec.hidden_size, spec.intermediate_size, bias=False)
        self.up_proj = nn.Linear(spec.hidden_size, spec.intermediate_size, bias=False)
        self.down_proj = nn.Linear(spec.intermediate_size, spec.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """Pre-norm attention and feed-forward with residuals."""

    def __init__(self, spec: TargetSpec) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(spec.hidden_size, spec.rms_norm_eps)
        self.self_attn = Attention(spec)
        self.post_attention_layernorm = RMSNorm(spec.hidden_size, spec.rms_norm_eps)
        self.mlp = MLP(spec)

    def forward(
        self, x: Tensor, tables: tuple[Tensor, Tensor], layer: int, attend: Attend
    ) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), tables, layer, attend)
        return x + self.mlp(self.post_attention_layernorm(x))


class Transformer(nn.Module):
    """Token ids in, final hidden states out; logits only for the rows that are asked for."""

    def __init__(self, spec: TargetSpec) -> None:
        super().__init__()
        self.spec = spec
        self.embed_tokens = nn.Embedding(spec.vocab_size, spec.hidden_size)
        self.layers = nn.ModuleList(Layer(spec) for _ in range(spec.num_layers))
        self.norm = RMSNorm(spec.hidden_size, spec.rms_norm_eps)
        self.lm_head = nn.Linear(spec.hidden_size, spec.vocab_size, bias=False)

    @property
    def dtype(self) -> torch.dtype:
        return self.norm.weight.dtype

    def hidden(self, tokens: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Final normed hidden states ``[..., D]`` of ``tokens[...]`` at ``positions[...]``."""
        x = self.embed_tokens(tokens)
        tables = rotary_tables(positions, self.spec, x.dtype)
        for index, layer in enumerate(self.layers):
            x = layer(x, tables, index, attend)
        return self.norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        """Vocabulary logits ``[..., V]`` of hidden states, in fp32 or wider."""
        logits = self.lm_head(hidden)
        return logits if logits.dtype == torch.float64 else logits.float()
