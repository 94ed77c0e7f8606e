"""A target ready to be asked: the network, a prefix cache per slot, and its two forwards.

``prefill`` reads aligned prompt blocks into a slot's cache; ``forward`` runs any number of block
copies (roots, drafts, finished blocks to store) of any number of slots at once.

Shapes: C copies, L block, R requested logit rows, V vocabulary, K key/value heads, E head dim.
"""

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from models.attention import (
    attend_masked,
    attend_part,
    fold_groups,
    merge_parts,
    unfold_groups,
)
from models.cache import PrefixCache
from models.int8 import holds_int8
from models.kept_blocks import KeptBlocks
from models.queries import Query, forward_queries
from models.transfer import to_device
from models.transformer import Attend, Transformer

NO_PARENT = -1
PREFILL_TOKENS = 4096
"""A longer prompt is prefilled in pieces of whole blocks, which bounds the memory that it takes."""


@dataclass(frozen=True)
class CopyBatch:
    """The block copies of one forward; copies of one slot stand side by side.

    ``parents[c]`` is the copy whose block comes between copy c and the cached prefix (a next block
    behind a full one), or ``NO_PARENT``; a parent has none itself. Copies with ``stores[c]`` become
    part of their slot's prefix; parents that are not stored are *offered*: until the slot's next
    forward that has such, :meth:`Target.adopt` can store one of them. ``rows`` index the flattened
    ``[C * L]`` positions to give logits for.
    """

    slots: Sequence[int]
    tokens_CL: Tensor
    parents: Sequence[int]
    stores: Sequence[bool]
    rows: Tensor

    def offered(self) -> dict[int, list[int]]:
        """Of each slot that has any, the copies that are offered, in their order."""
        found: dict[int, list[int]] = {}
        for copy in sorted({parent for parent in self.parents if parent != NO_PARENT}):
            assert self.parents[copy] == NO_PARENT, "a parent stands right behind the prefix"
            if not self.stores[copy]:
                found.setdefault(self.slots[copy], []).append(copy)
        return found


class Target:
    """One network and the prefix caches of its active slots (on this rank)."""

    def __init__(self, model: Transformer, num_kv_heads: int | None = None) -> None:
        self.model = model
        self.spec = model.spec
        self.num_kv_heads = num_kv_heads or model.spec.num_kv_heads
        self.caches: dict[int, PrefixCache] = {}
        self.kept = KeptBlocks()

    @property
    def device(self) -> torch.device:
        return self.model.norm.weight.device

    @property
    def placement(self) -> tuple[str, ...]:
        """What decides, beside the spec, how long a forward takes."""
        return where_it_runs(self.model)

    @property
    def open_slots(self) -> tuple[int, ...]:
        """Slots that hold something."""
        return tuple(self.caches)

    def open_slot(self, slot: int, length: int = 0, refresh: int = 0) -> None:
        """Give ``slot`` an empty prefix; ``length`` positions are announced, none is needed. The
        prefix cache is exact here: there is nothing to ``refresh``."""
        assert not refresh, "check_request refuses it"
        assert slot not in self.caches, f"slot {slot} is in use"
        self.caches[slot] = self._empty_cache(length)

    def _empty_cache(self, length: int) -> PrefixCache:
        return PrefixCache(self.spec, self.num_kv_heads, self.model.dtype, self.device)

    def close_slot(self, slot: int) -> None:
        """Free the prefix of ``slot``."""
        del self.caches[slot]

    @torch.inference_mode()
    def prefill(self, slot: int, tokens: Sequence[int]) -> None:
        """Append whole blocks of known ``tokens`` to the slot's prefix, block-causally."""
        cache, block = self.caches[slot], self.spec.block_size
        assert len(tokens) % block == 0, "only full blocks are prefilled"
        cache.reserve(len(tokens) + block)
        piece = max(1, PREFILL_TOKENS // block) * block
        for first in range(0, len(tokens), piece):
            self._prefill_piece(cache, tokens[first : first + piece])

    def _prefill_piece(self, cache: PrefixCache, tokens: Sequence[int]) -> None:
        block = self.spec.block_size
        positions = torch.arange(cache.length, cache.length + len(tokens), device=self.device)
        keys = torch.arange(cache.length + len(tokens), device=self.device)
        mask_QS = positions[:, None] // block >= keys[None, :] // block

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            cache.write(layer, k, v)
            return attend_masked(q, *cache.view(layer, len(tokens)), mask_QS)

        known = to_device(torch.tensor(tokens), self.device)
        hidden = self.model.hidden(known, positions, attend)
        cache.advance(len(tokens), hidden[-1])

    def forward(self, batch: CopyBatch) -> Tensor:
        """Logits ``[R, V]`` of the requested rows; stores what the batch says to store."""
        return self.forward_with_hidden(batch)[0]

    @torch.inference_mode()
    def forward_with_hidden(self, batch: CopyBatch) -> tuple[Tensor, Tensor]:
        """:meth:`forward`, and the last hidden states ``[R, D]`` that the logits were read from."""
        block = self.spec.block_size
        assert batch.tokens_CL.shape == (len(batch.slots), block)
        hidden = self._hidden(batch)
        read = hidden if self.spec.prediction == "same" else self._shifted(batch, hidden)
        for slot, kept in batch.offered().items():
            self.caches[slot].offered = [hidden[copy, -1] for copy in kept]
        # A slot that stores has nothing to offer: the place that others were written behind moves.
        for copy, (slot, stored) in enumerate(zip(batch.slots, batch.stores, strict=True)):
            if stored:
                self.caches[slot].advance(block, hidden[copy, -1])
        rows = read.flatten(0, 1)[to_device(batch.rows, self.device)]
        return self.model.logits(rows), rows

    def _hidden(self, batch: CopyBatch) -> Tensor:
        """Final hidden states ``[C, L, D]`` of all copies; what they keep is written."""
        block = self.spec.block_size
        starts = torch.tensor(
            [
                self.caches[slot].length + (block if parent != NO_PARENT else 0)
                for slot, parent in zip(batch.slots, batch.parents, strict=True)
            ],
            device=self.device,
        )
        positions = starts[:, None] + torch.arange(block, device=self.device)
        offered = batch.offered()
        for slot in set(batch.slots):
            self.caches[slot].reserve((2 + len(offered.get(slot, ()))) * block)
        tokens = batch.tokens_CL.to(self.device)
        return self.model.hidden(tokens, positions, self._attend_copies(batch))

    @torch.inference_mode()
    def adopt(self, slot: int, index: int) -> None:
        """Store the ``index``-th of the copies that the slot was last offered."""
        self.caches[slot].adopt(index)

    def _shifted(self, batch: CopyBatch, hidden_CLD: Tensor) -> Tensor:
        """Hidden states that predict each position: those of the position before, which for a
        block's first one lies in the parent copy or in the prefix. The very first position of a
        text has none, and reads its own."""
        before = []
        for copy, (slot, parent) in enumerate(zip(batch.slots, batch.parents, strict=True)):
            last = self.caches[slot].last_hidden
            if parent != NO_PARENT:
                last = hidden_CLD[parent, -1]
            before.append(hidden_CLD[copy, 0] if last is None else last)
        return torch.cat((torch.stack(before).unsqueeze(1), hidden_CLD[:, :-1]), dim=1)

    @torch.inference_mode()
    def forward_queries(self, queries: Sequence[Query]) -> Tensor:
        """Logits ``[R, V]`` of the requested rows of queries that bring their own masks."""
        return forward_queries(self.model, self.caches, queries)

    def retract(self, slot: int, length: int) -> None:
        """Keep only the first ``length`` tokens of the slot's prefix, a whole number of blocks."""
        self.caches[slot].retract(length)

    @torch.inference_mode()
    def keep(self, slot: int, first: int, numbers: Sequence[int]) -> None:
        """Keep copies of the slot's blocks from the ``first``-th on, under ``numbers``."""
        self.kept.keep(self.caches[slot], first, numbers)

    @torch.inference_mode()
    def restore(self, slot: int, numbers: Sequence[int]) -> None:
        """Begin the slot's empty prefix with kept blocks."""
        self.kept.restore(self.caches[slot], numbers)

    def drop(self, numbers: Sequence[int]) -> None:
        """Forget kept blocks."""
        self.kept.drop(numbers)

    def _attend_copies(self, batch: CopyBatch) -> Attend:
        """Prefix, optional parent copy and own block, merged by log-sum-exp."""
        block = self.spec.block_size
        runs = slot_runs(batch.slots)
        children = [c for c, parent in enumerate(batch.parents) if parent != NO_PARENT]
        parents = [batch.parents[c] for c in children]
        written = [(c, 0) for c, stored in enumerate(batch.stores) if stored]
        for kept in batch.offered().values():
            written += [(copy, 1 + index) for index, copy in enumerate(kept)]

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            for copy, place in written:
                self.caches[batch.slots[copy]].write(layer, k[copy], v[copy], place)
            if len(batch.slots) == 1:
                return self._attend_alone(layer, batch.slots[0], q, k, v)
            num_kv = k.shape[2]
            folded = fold_groups(q, num_kv)
            k, v = k.transpose(1, 2), v.transpose(1, 2)
            own_out, own_lse = attend_part(folded, k, v)
            if children:
                part = attend_part(folded[children], k[parents], v[parents])
                own = [(own_out[children], own_lse[children]), part]
                # The merged part stands for parent and own block when the prefix joins in.
                own_out[children] = merge_parts(own)
                own_lse[children] = torch.logaddexp(own_lse[children], part[1])
            for slot, first, last in runs:
                cache = self.caches[slot]
                if cache.length:
                    own_out[first:last] = self._join_prefix(
                        layer, cache, q[first:last], own_out[first:last], own_lse[first:last]
                    )
            return unfold_groups(own_out, block)

        return attend

    def _join_prefix(
        self, layer: int, cache: PrefixCache, q: Tensor, own_out: Tensor, own_lse: Tensor
    ) -> Tensor:
        """Add one slot's prefix to what its copies saw; all copies' queries meet it at once."""
        copies, block = q.shape[:2]
        keys, values = cache.view(layer)
        queries = fold_groups(q.flatten(0, 1).unsqueeze(0), self.num_kv_heads)
        out, lse = attend_part(queries, keys.unsqueeze(0), values.unsqueeze(0))
        # [1, K, G*C*L] -> [C, K, G*L], to lie beside the own-block part
        groups = queries.shape[2] // (copies * block)
        shape = (self.num_kv_heads, groups, copies, block)
        out = out.view(*shape, -1).permute(2, 0, 1, 3, 4).flatten(2, 3)
        lse = lse.reshape(shape).permute(2, 0, 1, 3).flatten(2, 3)
        return merge_parts([(out, lse), (own_out, own_lse)])

    def _attend_alone(self, layer: int, slot: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """A single copy: its keys go behind the prefix as scratch, one plain attention."""
        cache = self.caches[slot]
        cache.write(layer, k[0], v[0])
        return attend_masked(q[0], *cache.view(layer, self.spec.block_size), None).unsqueeze(0)


def where_it_runs(model: Transformer) -> tuple[str, ...]:
    """Precision, device and software of a network."""
    device = model.norm.weight.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    threads = f"{torch.get_num_threads()} threads of {os.cpu_count()}"
    precision = f"{model.dtype}, int8 weights" if holds_int8(model) else str(model.dtype)
    return precision, device.type, name, threads, torch.__version__


def slot_runs(slots: Sequence[int]) -> list[tuple[int, int, int]]:
    """``(slot, first, last)`` of each run of copies; a slot must not appear in two runs."""
    runs, first = [], 0
    for slot, members in groupby(slots):
        last = first + sum(1 for _ in members)
        runs.append((slot, first, last))
        first = last
    assert len({slot for slot, _, _ in runs}) == len(runs), "copies of one slot stand together"
    return runs
