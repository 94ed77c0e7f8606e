"""A target whose forwards come in few shapes, so that CUDA graphs can replay them.

Prefixes lie in one pool of memory; copies, slots and prefixes are padded (:mod:`models.buckets`),
the integers that describe a batch reach the device in one transfer, and nothing in a forward waits
for the device. The network's last hidden states are what is captured; logits follow, for as many
rows as are asked for.

Shapes: C copies (padded), L block, T = C * L, D hidden size, H heads, K key/value heads, E head
dimension.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from models.buckets import Bucket, Inputs, SlotPart, bucket_of, pack_inputs, unpack_inputs
from models.graphs import GraphCache
from models.pool import KeyValuePool, PooledPrefix
from models.ragged import attend_ragged, merge_packed
from models.target import CopyBatch, Target, slot_runs
from models.transformer import Attend, Transformer


class BucketedTarget(Target):
    """A target with padded forwards; ``captures``: CUDA graphs replay them. Without, the same
    padded forwards run as they are."""

    caches: dict[int, PooledPrefix]  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(
        self, model: Transformer, num_kv_heads: int | None = None, *, captures: bool = False
    ) -> None:
        super().__init__(model, num_kv_heads)
        memory = self.spec, self.num_kv_heads, model.dtype, self.device
        self.pool = KeyValuePool(*memory, self.caches)
        self.graphs: GraphCache[Tensor] = GraphCache(self.device, captures)
        self._moves = 0

    @property
    def placement(self) -> tuple[str, ...]:
        """What decides, beside the spec, how long a forward takes."""
        return (*super().placement, "graphs" if self.graphs.captures else "buckets")

    def _empty_cache(self, length: int) -> PooledPrefix:
        return PooledPrefix(self.pool, length + 2 * self.spec.block_size)

    def _hidden(self, batch: CopyBatch) -> Tensor:
        """Final hidden states ``[C, L, D]`` of all copies; what they keep is written."""
        runs, offered = slot_runs(batch.slots), batch.offered()
        for slot, _, _ in runs:
            self.caches[slot].reserve((2 + len(offered.get(slot, ()))) * self.spec.block_size)
        if self.pool.moves != self._moves:
            self.graphs.forget()
            self._moves = self.pool.moves
        parts = [
            SlotPart(first, last, self.caches[slot].start, self.caches[slot].length)
            for slot, first, last in runs
        ]
        longest = max(part.length for part in parts)
        bucket = bucket_of(batch.slots, batch.parents, batch.stores, longest)
        writes = self._writes(batch, bucket, offered)
        packed = pack_inputs(bucket, batch.tokens_CL, batch.parents, writes, parts)
        padded = self.graphs.run(bucket, partial(self._padded, bucket), packed)
        hidden = padded[: len(batch.slots)]
        # The next replay overwrites what this one left, and some of it may be kept.
        return hidden.clone() if self.graphs.captures else hidden

    def _writes(
        self, batch: CopyBatch, bucket: Bucket, offered: dict[int, list[int]]
    ) -> Sequence[int]:
        """The pool's row for every copy's first token: right behind the prefix for a copy that is
        stored (or alone), the blocks after that for parents that are not; 0, which is nobody's,
        for all others."""
        block, writes = self.spec.block_size, [0] * len(batch.slots)
        for copy, (slot, stored) in enumerate(zip(batch.slots, batch.stores, strict=True)):
            if stored or bucket.kind == "alone":
                writes[copy] = self.caches[slot].behind
        for slot, copies in offered.items():
            for place, copy in enumerate(copies, start=1):
                writes[copy] = self.caches[slot].behind + place * block
        return writes

    def _padded(self, bucket: Bucket, packed: Tensor) -> Tensor:
        """Final hidden states ``[C, L, D]`` of a bucket's copies: what a graph captures."""
        inputs = unpack_inputs(packed, bucket, self.spec.block_size)
        attend = self._attend_bucket(bucket, inputs)
        return self.model.hidden(inputs.tokens_CL, inputs.positions_CL, attend)

    def _attend_bucket(self, bucket: Bucket, inputs: Inputs) -> Attend:
        """Own block (behind its parent) and prefix, merged by log-sum-exp."""

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            q_THE, parts = q.flatten(0, 1), []
            if bucket.kind != "drafts":
                self.pool.write(layer, inputs.writes_T, k.flatten(0, 1), v.flatten(0, 1))
            if inputs.own is not None:
                if bucket.kind == "family":
                    k, v = (torch.cat((x, x[inputs.parents_C]), dim=1) for x in (k, v))
                parts.append(attend_ragged(q_THE, k.flatten(0, 1), v.flatten(0, 1), inputs.own))
            if inputs.prefix is not None:
                keys, values = self.pool.keys[layer], self.pool.values[layer]
                queries = q_THE.repeat(bucket.pieces, 1, 1)
                out, lse = attend_ragged(queries, keys, values, inputs.prefix)
                parts += zip(out.chunk(bucket.pieces), lse.chunk(bucket.pieces), strict=True)
            return merge_packed(parts).view(q.shape)

        return attend
