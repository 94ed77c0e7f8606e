"""Tensor parallelism put on a network from outside, and how ranks follow rank 0.

Queries, keys, values, gate and up keep a slice of their outputs (whole heads), o and down a slice
of their inputs and sum over the ranks; the embedding and the head keep a slice of the vocabulary.
Rank 0 announces every operation in a few integers; logits are whole on rank 0 only.

Shapes: C copies, L block, R requested logit rows, V vocabulary, D hidden size.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.bucketed_target import BucketedTarget
from models.config import Forwards
from models.full_target import FullTarget
from models.queries import Query, pack_queries, unpack_queries
from models.ranks import Ranks
from models.spec import TargetSpec
from models.target import CopyBatch, Target
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


AnyTarget = Target | BucketedTarget | FullTarget


def open_target(
    model: Transformer, ranks: Ranks | None = None, forwards: Forwards = "auto"
) -> AnyTarget:
    """The target of a network, or of one rank's share of it, with caches for its own heads.

    Raises ``ValueError`` for forwards that the network or its device does not have.
    """
    kind, device = model.spec.topology, model.norm.weight.device.type
    if kind == "bidirectional":
        if forwards not in ("auto", "plain"):
            raise ValueError(
                f"target.forwards {forwards!r}: a bidirectional target has no prefix to keep in a "
                "pool; valid: auto, plain"
            )
        return FullTarget(model)
    if forwards == "graphs" and device != "cuda":
        raise ValueError(
            f"target.forwards 'graphs': device {device} captures none; valid: auto, plain, buckets"
        )
    heads = model.spec.num_kv_heads // (ranks.size if ranks else 1)
    if forwards == "auto":
        forwards = "graphs" if device == "cuda" else "plain"
    if forwards == "plain":
        return Target(model, heads)
    return BucketedTarget(model, heads, captures=forwards == "graphs")


def sharded_target(model: Transformer, ranks: Ranks) -> AnyTarget:
    """This rank's share of a whole ``model``."""
    shard_model(model, ranks)
    return open_target(model, ranks)


def caching(target: AnyTarget) -> Target:
    """A target that has a prefix cache; only such ones are asked what needs one."""
    assert not isinstance(target, FullTarget), "a bidirectional target has no prefix cache"
    return target


class Operation(IntEnum):
    """What rank 0 announces; a header is the operation and two counts or ids."""

    STOP = 0
    OPEN = 1
    CLOSE = 2
    PREFILL = 3
    FORWARD = 4
    ADOPT = 5
    QUERIES = 6
    KEEP = 7
    RESTORE = 8
    DROP = 9


class LeadingTarget:
    """Rank 0's target: every operation is announced, so that all ranks run it together."""

    def __init__(self, local: AnyTarget, ranks: Ranks) -> None:
        assert ranks.leads
        self.local = local
        self.ranks = ranks
        self.spec = local.spec
        self.placement = (*local.placement, f"{ranks.size} ranks")

    @property
    def device(self) -> torch.device:
        return self.local.device

    def open_slot(self, slot: int, length: int = 0, refresh: int = 0) -> None:
        """Give ``slot`` an empty prefix on every rank."""
        self._announce(Operation.OPEN, slot, length, torch.tensor([refresh]))
        self.local.open_slot(slot, length, refresh)

    def close_slot(self, slot: int) -> None:
        """Free the prefix of ``slot`` on every rank."""
        self._announce(Operation.CLOSE, slot, 0)
        self.local.close_slot(slot)

    def prefill(self, slot: int, tokens: Sequence[int]) -> None:
        """Append whole blocks of known ``tokens`` to the slot's prefix on every rank."""
        self._announce(Operation.PREFILL, slot, len(tokens), torch.tensor(tokens))
        self.local.prefill(slot, tokens)

    def forward(self, batch: CopyBatch) -> Tensor:
        """Logits ``[R, V]`` of the requested rows; every rank stores its share."""
        return self.forward_with_hidden(batch)[0]

    def forward_with_hidden(self, batch: CopyBatch) -> tuple[Tensor, Tensor]:
        """:meth:`forward`, and the rows' last hidden states, which every rank has."""
        self._announce(Operation.FORWARD, len(batch.slots), len(batch.rows), pack(batch))
        return self.local.forward_with_hidden(batch)

    def adopt(self, slot: int, index: int) -> None:
        """Store, on every rank, its share of a copy that the slot was last offered."""
        self._announce(Operation.ADOPT, slot, index)
        self.local.adopt(slot, index)

    def forward_queries(self, queries: Sequence[Query]) -> Tensor:
        """Logits ``[R, V]`` of masked queries' rows; every rank stores its share."""
        message = pack_queries(queries)
        self._announce(Operation.QUERIES, len(message), 0, message)
        return caching(self.local).forward_queries(queries)

    def keep(self, slot: int, first: int, numbers: Sequence[int]) -> None:
        """Keep, on every rank, copies of its share of the slot's blocks from the ``first``-th."""
        self._announce(Operation.KEEP, slot, len(numbers), torch.tensor([first, *numbers]))
        caching(self.local).keep(slot, first, numbers)

    def restore(self, slot: int, numbers: Sequence[int]) -> None:
        """Begin the slot's empty prefix with kept blocks, on every rank."""
        self._announce(Operation.RESTORE, slot, len(numbers), torch.tensor(numbers))
        caching(self.local).restore(slot, numbers)

    def drop(self, numbers: Sequence[int]) -> None:
        """Forget kept blocks on every rank."""
        self._announce(Operation.DROP, len(numbers), 0, torch.tensor(numbers))
        caching(self.local).drop(numbers)

    def stop(self) -> None:
        """Let the other ranks return from :func:`follow`."""
        self._announce(Operation.STOP, 0, 0)

    def _announce(
        self, operation: Operation, first: int, second: int, payload: Tensor | None = None
    ) -> None:
        self.ranks.announce(torch.tensor([operation, first, second]))
        if payload is not None:
            self.ranks.announce(payload)


def follow(target: AnyTarget, ranks: Ranks) -> None:
    """Run on ``target`` what rank 0 announces, until it says to stop."""

    def payload(size: int) -> Tensor:
        return ranks.announce(torch.empty(size, dtype=torch.int64))

    def queries(size: int, _: int) -> None:
        caching(target).forward_queries(unpack_queries(payload(size)))

    def keep(slot: int, count: int) -> None:
        first, *numbers = payload(1 + count).tolist()
        caching(target).keep(slot, first, numbers)

    run: dict[Operation, Callable[[int, int], object]] = {
        Operation.QUERIES: queries,
        Operation.OPEN: lambda slot, length: target.open_slot(slot, length, int(payload(1))),
        Operation.CLOSE: lambda slot, _: target.close_slot(slot),
        Operation.ADOPT: target.adopt,
        Operation.KEEP: keep,
        Operation.RESTORE: lambda s, count: caching(target).restore(s, payload(count).tolist()),
        Operation.DROP: lambda count, _: caching(target).drop(payload(count).tolist()),
        Operation.PREFILL: lambda slot, size: target.prefill(slot, payload(size).tolist()),
        Operation.FORWARD: lambda copies, rows: target.forward(
            unpack(payload(copies * (3 + target.spec.block_size) + rows), copies, target.spec)
        ),
    }
    while True:
        operation, first, second = payload(3).tolist()
        if operation == Operation.STOP:
            return
        run[Operation(operation)](first, second)


def pack(batch: CopyBatch) -> Tensor:
    """A batch as one row of integers: slots, parents, stores, tokens, rows."""
    columns = [torch.tensor(column) for column in (batch.slots, batch.parents, batch.stores)]
    return torch.cat([*columns, batch.tokens_CL.flatten(), batch.rows]).to("cpu", torch.int64)


def unpack(message: Tensor, copies: int, spec: TargetSpec) -> CopyBatch:
    """The inverse of :func:`pack`."""
    slots, parents, stores, tokens, rows = message.split(
        [
            copies,
            copies,
            copies,
            copies * spec.block_size,
            len(message) - copies * (3 + spec.block_size),
        ]
    )
    return CopyBatch(
        slots.tolist(),
        tokens.view(copies, spec.block_size),
        parents.tolist(),
        [bool(stored) for stored in stores.tolist()],
        rows,
    )
