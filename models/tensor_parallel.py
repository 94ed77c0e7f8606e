"""Tensor parallelism put on a network from outside.

Queries, keys, values, gate and up keep a slice of their outputs (whole heads), o and down a slice
of their inputs and sum over the ranks; the embedding and the head keep a slice of the vocabulary.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.ranks import Ranks
from models.spec import TargetSpec
from models.transformer import MLP, ExpertBank, Layer, Transformer


def check_tensor_parallel(spec: TargetSpec, size: int) -> None:
    """Raise ``ValueError`` for a number of ranks that does not split the network evenly."""
    if size not in spec.tensor_parallel_sizes:
        valid = ", ".join(map(str, spec.tensor_parallel_sizes))
        uneven = [f"{name} {n}" for name, n in spec.splits.items() if size < 1 or n % size]
        raise ValueError(
            f"target.tp {size} does not split this target evenly ({', '.join(uneven)}); "
            f"valid: {valid}"
        )


def _slice(weight: Tensor, dim: int, ranks: Ranks) -> nn.Parameter:
    """This rank's part of ``weight`` along ``dim``, in memory of its own (or, as the weight, in
    none yet: on the meta device)."""
    part = weight.detach().chunk(ranks.size, dim)[ranks.rank]
    return nn.Parameter(part.clone(memory_format=torch.contiguous_format), requires_grad=False)


class RowLinear(nn.Module):
    """A linear map whose input is spread over the ranks; every rank gets the whole output."""

    def __init__(self, whole: nn.Linear, ranks: Ranks) -> None:
        super().__init__()
        self.weight = _slice(whole.weight, 1, ranks)
        self.ranks = ranks

    def forward(self, x: Tensor) -> Tensor:
        return self.ranks.sum(F.linear(x, self.weight))


class VocabEmbedding(nn.Module):
    """An embedding whose rows are spread over the ranks."""

    def __init__(self, whole: nn.Embedding, ranks: Ranks) -> None:
        super().__init__()
        self.weight = _slice(whole.weight, 0, ranks)
        self.ranks = ranks

    def forward(self, tokens: Tensor) -> Tensor:
        local = tokens - self.ranks.rank * self.weight.shape[0]
        elsewhere = (local < 0) | (local >= self.weight.shape[0])
        found = F.embedding(local.masked_fill(elsewhere, 0), self.weight)
        return self.ranks.sum(found.masked_fill(elsewhere.unsqueeze(-1), 0))


def _keep_outputs(linear: nn.Linear, ranks: Ranks) -> None:
    linear.weight = _slice(linear.weight, 0, ranks)
    if linear.bias is not None:
        linear.bias = _slice(linear.bias, 0, ranks)
    linear.out_features = linear.weight.shape[0]


def _shard_mlp(mlp: MLP, ranks: Ranks) -> None:
    for linear in (mlp.gate_proj, mlp.up_proj):
        _keep_outputs(linear, ranks)
    mlp.add_module("down_proj", RowLinear(mlp.down_proj, ranks))


def _shard_experts(bank: ExpertBank, ranks: Ranks) -> None:
    """Keep this rank's experts; outputs are summed over the ranks."""
    for name, weight in list(bank.named_parameters()):
        bank.register_parameter(name, _slice(weight, 0, ranks))
    bank.first = ranks.rank * len(bank.gate_proj)
    bank.combine = ranks.sum


def shard_model(model: Transformer, ranks: Ranks) -> dict[str, int]:
    """Leave this rank's share of ``model`` in it (in place); the rest of the weights is freed.

    Returns the dimension along which each cut parameter was cut. Raises ``ValueError`` for a
    number of ranks that does not split the network evenly.
    """
    check_tensor_parallel(model.spec, ranks.size)
    whole = {name: p.shape for name, p in model.named_parameters()}
    for layer in model.layers:
        assert isinstance(layer, Layer)
        attention, mlp = layer.self_attn, layer.mlp
        for linear in (attention.q_proj, attention.k_proj, attention.v_proj):
            _keep_outputs(linear, ranks)
        attention.add_module("o_proj", RowLinear(attention.o_proj, ranks))
        if isinstance(mlp, MLP):
            _shard_mlp(mlp, ranks)
            continue
        _shard_experts(mlp.experts, ranks)
        if mlp.shared is not None:
            _shard_mlp(mlp.shared, ranks)
    model.add_module("embed_tokens", VocabEmbedding(model.embed_tokens, ranks))
    if model.lm_head is not None:
        _keep_outputs(model.lm_head, ranks)
    model.gather = ranks.gather_last
    return {
        name: next(d for d, size in enumerate(whole[name]) if size != p.shape[d])
        for name, p in model.named_parameters()
        if p.shape != whole[name]
    }


def share_shapes(spec: TargetSpec, size: int) -> dict[str, torch.Size]:
    """Names and shapes of the parameters that one of ``size`` ranks holds, nothing allocated."""
    with torch.device("meta"):
        model = Transformer(spec)
    if size > 1:
        # (No rank is asked anything while the weights are cut.)
        shard_model(model, Ranks(0, size, control=None))  # pyright: ignore[reportArgumentType]
    return {name: parameter.shape for name, parameter in model.named_parameters()}
