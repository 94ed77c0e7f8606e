"""A target whose forwards come in few shapes, so that CUDA graphs can replay them.

It answers the calls of :class:`models.target.Target`, with the same logits. Prefixes lie in one
pool of memory; copies, slots and prefixes are padded (:mod:`models.buckets`), the integers that
describe a batch reach the device in one transfer, and nothing in a forward waits for the device.
The network's last hidden states are what is captured; logits follow, for as many rows as are asked
for.

Shapes: C copies (padded), L block, T = C * L, D hidden size, R requested logit rows, V vocabulary,
H heads, K key/value heads, E head dimension.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from models.attention import attend_masked
from models.buckets import Bucket, Inputs, SlotPart, bucket_of, pack_inputs, unpack_inputs
from models.graphs import GraphCache
from models.pool import KeyValuePool
from models.ragged import attend_ragged, merge_packed
from models.target import (
    CopyBatch,
    block_causal_mask,
    prefill_pieces,
    shifted,
    slot_runs,
    where_it_runs,
)
from models.transfer import to_device
from models.transformer import Attend, Transformer


class BucketedTarget:
    """One network and the pool of its active slots' prefixes (on this rank)."""

    def __init__(
        self, model: Transformer, num_kv_heads: int | None = None, *, captures: bool = False
    ) -> None:
        """``captures``: replay CUDA graphs; without, the same padded forwards run as they are."""
        self.model = model
        self.spec = model.spec
        heads = num_kv_heads or model.spec.num_kv_heads
        self.pool = KeyValuePool(model.spec, heads, model.dtype, self.device)
        self.graphs: GraphCache[Tensor] = GraphCache(self.device, captures)
        self._moves = 0

    @property
    def device(self) -> torch.device:
        return self.model.norm.weight.device

    @property
    def placement(self) -> tuple[str, ...]:
        """What decides, beside the spec, how long a forward takes."""
        return (*where_it_runs(self.model), "graphs" if self.graphs.captures else "buckets")

    @property
    def open_slots(self) -> tuple[int, ...]:
        """Slots that hold something."""
        return tuple(self.pool.runs)

    def open_slot(self, slot: int, length: int = 0, refresh: int = 0) -> None:
        """Give ``slot`` an empty prefix; room is made for the ``length`` positions announced. The
        prefix is exact: there is nothing to ``refresh``."""
        assert not refresh, "check_request refuses it"
        self.pool.open(slot, length + 2 * self.spec.block_size)

    def close_slot(self, slot: int) -> None:
        """Free the prefix of ``slot``."""
        self.pool.close(slot)

    @torch.inference_mode()
    def prefill(self, slot: int, tokens: Sequence[int]) -> None:
        """Append whole blocks of known ``tokens`` to the slot's prefix, block-causally."""
        for piece in prefill_pieces(tokens, self.spec.block_size):
            self._prefill_piece(slot, piece)

    def _prefill_piece(self, slot: int, tokens: Sequence[int]) -> None:
        pool, block, count = self.pool, self.spec.block_size, len(tokens)
        pool.reserve(slot, count + block)
        positions, mask_QS = block_causal_mask(pool.runs[slot].length, count, block, self.device)

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            pool.write_behind(slot, layer, k, v)
            return attend_masked(q, *pool.view(slot, layer, count), mask_QS)

        known = to_device(torch.tensor(tokens), self.device)
        hidden = self.model.hidden(known, positions, attend)
        pool.advance(slot, count, self._last(hidden))

    @torch.inference_mode()
    def forward(self, batch: CopyBatch) -> Tensor:
        """Logits ``[R, V]`` of the requested rows; stores what the batch says to store."""
        block, pool = self.spec.block_size, self.pool
        assert batch.tokens_CL.shape == (len(batch.slots), block)
        runs = slot_runs(batch.slots)
        for slot, first, last in runs:
            pool.reserve(slot, (1 + sum(batch.stores[first:last])) * block)
        if pool.moves != self._moves:
            self.graphs.forget()
            self._moves = pool.moves
        parts = [
            SlotPart(first, last, pool.runs[slot].start, pool.runs[slot].length)
            for slot, first, last in runs
        ]
        longest = max(part.length for part in parts)
        bucket = bucket_of(batch.slots, batch.parents, batch.stores, longest)
        packed = pack_inputs(
            bucket, batch.tokens_CL, batch.parents, self._writes(batch, bucket, parts), parts
        )
        hidden_CLD = self.graphs.run(bucket, partial(self._hidden, bucket), packed)
        read = hidden_CLD
        if self.spec.prediction == "shifted":
            lasts = [pool.runs[slot].last_hidden for slot in batch.slots]
            read = shifted(hidden_CLD[: len(lasts)], batch.parents, lasts)
        for copy, (slot, stored) in enumerate(zip(batch.slots, batch.stores, strict=True)):
            if stored:
                pool.advance(slot, block, self._last(hidden_CLD[copy]))
        rows = to_device(batch.rows, self.device)
        return self.model.logits(read.flatten(0, 1)[rows])

    def _last(self, hidden_LD: Tensor) -> Tensor | None:
        """What a shifted prediction of the next block begins with, apart from a graph's memory."""
        return hidden_LD[-1].clone() if self.spec.prediction == "shifted" else None

    def _writes(self, batch: CopyBatch, bucket: Bucket, parts: Sequence[SlotPart]) -> list[int]:
        """The pool's row for every copy's first token: behind the prefix of its slot, one stored
        copy after the other; 0, which is nobody's, where nothing is kept."""
        writes = [0] * len(batch.slots)
        for part in parts:
            row = part.start + part.length
            for copy in range(part.first, part.last):
                if batch.stores[copy] or bucket.kind == "alone":
                    writes[copy] = row
                    row += self.spec.block_size
        return writes

    def _hidden(self, bucket: Bucket, packed: Tensor) -> Tensor:
        """Final hidden states ``[C, L, D]`` of a bucket's copies: what a graph captures."""
        inputs = unpack_inputs(packed, bucket, self.spec.block_size)
        attend = self._attend(bucket, inputs)
        return self.model.hidden(inputs.tokens_CL, inputs.positions_CL, attend)

    def _attend(self, bucket: Bucket, inputs: Inputs) -> Attend:
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
