"""The network of every family: RMSNorm, grouped queries, RoPE, SwiGLU or experts in its place.

What differs between families is in the spec: norms of queries and keys, biases, partly rotating
heads, experts and their router.

What attends to what is not decided here: every use (prefill, root + drafts over a cached prefix,
the doubled training sequence) passes its own ``attend`` function.

Shapes: D hidden size, H heads, K key/value heads, E head dimension, V vocabulary; leading
dimensions ``...`` are whatever the caller uses, tokens last.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.expert_forms import Bank, form_for
from models.spec import Experts, TargetSpec

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""``attend(layer, q[...,H,E], k[...,K,E], v[...,K,E]) -> out[...,H,E]``"""


class RMSNorm(nn.Module):
    """Root-mean-square norm, computed in at least fp32 and scaled in the input's dtype; on CUDA by
    one kernel, which rounds once, after scaling."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        if x.is_cuda:
            return F.rms_norm(x, self.weight.shape, self.weight, self.eps)
        wide = x if x.dtype == torch.float64 else x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


def rotary_tables(positions: Tensor, spec: TargetSpec, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines ``[..., 1, E]`` of integer ``positions[...]``, made in at least fp32; of
    partly rotating heads, for the components that turn."""
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    size = spec.rotary_dim or spec.head_dim
    exponents = torch.arange(0, size, 2, device=positions.device, dtype=wide)
    frequencies = spec.rope_theta ** (-exponents / size)
    angles = positions[..., None].to(wide) * frequencies
    angles = torch.cat((angles, angles), dim=-1).unsqueeze(-2)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply rotary positions to the leading components of ``x[..., heads, E]`` (half rotation)."""
    size = cos.shape[-1]
    if size < x.shape[-1]:
        return torch.cat((rotate(x[..., :size], cos, sin), x[..., size:]), dim=-1)
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Attention(nn.Module):
    """Projections of one attention layer; the head counts follow from the weights it holds."""

    def __init__(self, spec: TargetSpec) -> None:
        super().__init__()
        self.head_dim = spec.head_dim
        self.rotate = rotate
        query, key = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
        self.q_proj = nn.Linear(spec.hidden_size, query, bias=spec.qkv_bias)
        self.k_proj = nn.Linear(spec.hidden_size, key, bias=spec.qkv_bias)
        self.v_proj = nn.Linear(spec.hidden_size, key, bias=spec.qkv_bias)
        self.o_proj = nn.Linear(query, spec.hidden_size, bias=False)
        if spec.qk_norm:
            self.q_norm = RMSNorm(spec.head_dim, spec.rms_norm_eps)
            self.k_norm = RMSNorm(spec.head_dim, spec.rms_norm_eps)
        else:
            self.q_norm = self.k_norm = nn.Identity()

    def forward(
        self, x: Tensor, tables: tuple[Tensor, Tensor], layer: int, attend: Attend
    ) -> Tensor:
        heads = (*x.shape[:-1], -1, self.head_dim)
        q = self.rotate(self.q_norm(self.q_proj(x).view(heads)), *tables)
        k = self.rotate(self.k_norm(self.k_proj(x).view(heads)), *tables)
        v = self.v_proj(x).view(heads)
        return self.o_proj(attend(layer, q, k, v).flatten(-2))


def gated(gate: Tensor, up: Tensor) -> Tensor:
    """The SwiGLU product."""
    return F.silu(gate) * up


class MLP(nn.Module):
    """SwiGLU feed-forward."""

    def __init__(self, hidden_size: int, intermediate_size: int) -> None:
        super().__init__()
        self.gated = gated
        self.gate_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.up_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.gated(self.gate_proj(x), self.up_proj(x)))


class Router(nn.Module):
    """Which experts each token passes, and with which weights."""

    def __init__(self, hidden_size: int, experts: Experts) -> None:
        super().__init__()
        self.experts = experts
        self.weight = nn.Parameter(torch.zeros(experts.count, hidden_size))
        if experts.router == "grouped_sigmoid":
            # It decides near ties, so it stays in the precision in which scores are compared.
            self.bias = nn.Parameter(torch.zeros(experts.count, dtype=torch.float32))

    def forward(self, x_ND: Tensor) -> tuple[Tensor, Tensor]:
        """Expert ids ``[N, per_token]`` and their weights, in at least fp32."""
        wide = torch.float64 if x_ND.dtype == torch.float64 else torch.float32
        if self.experts.router == "softmax":
            return self._softmax(F.linear(x_ND, self.weight).to(wide))
        return self._grouped(F.linear(x_ND.to(wide), self.weight.to(wide)))

    def _softmax(self, logits_NX: Tensor) -> tuple[Tensor, Tensor]:
        """Qwen3-MoE: the most probable of all."""
        weights, chosen = logits_NX.softmax(dim=1).topk(self.experts.per_token, dim=1)
        if self.experts.normalized:
            weights = weights / weights.sum(dim=1, keepdim=True)
        return chosen, weights

    def _grouped(self, logits_NX: Tensor) -> tuple[Tensor, Tensor]:
        """LLaDA2: biased sigmoid scores choose, first groups by their two best experts, then
        experts within these; the weights are the unbiased scores."""
        own = self.experts
        scores = logits_NX.sigmoid()
        biased = scores + self.bias.to(scores.dtype)
        grouped = biased.unflatten(1, (own.groups, -1))
        best = grouped.topk(min(2, grouped.shape[2]), dim=2).values.sum(dim=2)
        kept = torch.zeros_like(best, dtype=torch.bool)
        kept.scatter_(1, best.topk(own.groups_per_token, dim=1).indices, True)
        allowed = grouped.masked_fill(~kept.unsqueeze(2), -torch.inf).flatten(1)
        chosen = allowed.topk(own.per_token, dim=1).indices
        weights = scores.gather(1, chosen)
        if own.normalized:
            weights = weights / (weights.sum(dim=1, keepdim=True) + 1e-20)
        return chosen, weights * own.scaling


class ExpertBank(nn.Module):
    """The weights of consecutive experts, ``first`` being the first one held here."""

    def __init__(self, hidden_size: int, experts: Experts) -> None:
        super().__init__()
        count, size = experts.count, experts.intermediate_size
        self.first = 0
        self.combine: Callable[[Tensor], Tensor] | None = None
        """Adds what other banks, on other ranks, make of the same tokens."""
        self.gate_proj = nn.Parameter(torch.zeros(count, size, hidden_size))
        self.up_proj = nn.Parameter(torch.zeros(count, size, hidden_size))
        self.down_proj = nn.Parameter(torch.zeros(count, hidden_size, size))

    def forward(self, x_ND: Tensor, chosen_NX: Tensor, weights_NX: Tensor) -> Tensor:
        """Weighted outputs ``[N, D]`` of each token's experts.

        A token's experts are summed in the router's order, whatever its neighbours chose.
        """
        bank = Bank(self.gate_proj, self.up_proj, self.down_proj)
        parts = form_for(x_ND, bank)(x_ND, chosen_NX - self.first, bank)
        found = (parts * weights_NX.to(parts.dtype).unsqueeze(2)).sum(dim=1)
        return found if self.combine is None else self.combine(found)


class MixtureOfExperts(nn.Module):
    """Every token passes a few of many feed-forwards, and the shared one where there is one."""

    def __init__(self, hidden_size: int, experts: Experts) -> None:
        super().__init__()
        self.router = Router(hidden_size, experts)
        self.experts = ExpertBank(hidden_size, experts)
        size = experts.shared_size
        self.shared = MLP(hidden_size, size) if size else None

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(0, -2)
        found = self.experts(flat, *self.router(flat)).view_as(x)
        return found if self.shared is None else found + self.shared(x)


class Layer(nn.Module):
    """Pre-norm attention and feed-forward with residuals."""

    def __init__(self, spec: TargetSpec, index: int) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(spec.hidden_size, spec.rms_norm_eps)
        self.self_attn = Attention(spec)
        self.post_attention_layernorm = RMSNorm(spec.hidden_size, spec.rms_norm_eps)
        if spec.experts is None or index < spec.num_dense_layers:
            self.mlp = MLP(spec.hidden_size, spec.intermediate_size)
        else:
            self.mlp = MixtureOfExperts(spec.hidden_size, spec.experts)

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
        # Not drawn: on the meta device that alone would import a compiler, for seconds.
        table = torch.zeros(spec.vocab_size, spec.hidden_size)
        self.embed_tokens = nn.Embedding.from_pretrained(table, freeze=False)
        self.layers = nn.ModuleList(Layer(spec, index) for index in range(spec.num_layers))
        self.norm = RMSNorm(spec.hidden_size, spec.rms_norm_eps)
        self.lm_head = None
        if not spec.tied_embeddings:
            self.lm_head = nn.Linear(spec.hidden_size, spec.vocab_size, bias=False)
        self.gather: Callable[[Tensor], Tensor] | None = None
        """Puts what other ranks' parts of the vocabulary say beside this one's."""

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
        head = self.embed_tokens if self.lm_head is None else self.lm_head
        logits = F.linear(hidden, head.weight)
        if self.gather is not None:
            logits = self.gather(logits)
        return logits if logits.dtype == torch.float64 else logits.float()
