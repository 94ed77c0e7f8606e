"""Shapes of forwards in few sizes: which bucket a batch falls into, and its padded inputs.

A captured graph is good for one shape. Copies, slots and the longest prefix are therefore rounded
up; padding copies belong to a slot that holds nothing, and what they compute is dropped.

Shapes: C copies, S slots, L block, N prefix problems (each slot and the padding's, piece by piece).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from models.ragged import Problems

Kind = Literal["alone", "drafts", "family"]
"""``alone``: every slot has one copy, whose keys go behind its prefix, so that one attention does;
``drafts``: copies share their slot's prefix, and no keys are kept; ``family``: some copies stand
behind a parent copy, or are stored."""

FIRST_PREFIX = 128
"""The smallest prefix bucket, in tokens; the others double it."""
PIECE = 1024
"""A longer prefix is attended to in pieces of this many tokens side by side: the few queries of a
forward alone would not keep a GPU busy."""


@dataclass(frozen=True)
class Bucket:
    """One shape: copies, slots, and tokens that the longest prefix may have."""

    kind: Kind
    copies: int
    slots: int
    prefix: int

    @property
    def pieces(self) -> int:
        return max(1, self.prefix // PIECE)


def rounded_copies(copies: int) -> int:
    """1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, ...: a root, and 2^k or 3 * 2^k drafts."""
    drafts, size = copies - 1, 1
    if drafts <= 3:
        return copies
    while size < drafts:
        size *= 2
    return 1 + (3 * size // 4 if 3 * size // 4 >= drafts else size)


def rounded_slots(slots: int) -> int:
    """The next power of two."""
    return 1 << (slots - 1).bit_length()


def rounded_prefix(tokens: int) -> int:
    """0, or the next power of two from ``FIRST_PREFIX`` on."""
    return 0 if tokens == 0 else max(FIRST_PREFIX, 1 << (tokens - 1).bit_length())


def bucket_of(
    slots: Sequence[int], parents: Sequence[int], stores: Sequence[bool], longest: int
) -> Bucket:
    """The bucket of a batch whose longest prefix has ``longest`` tokens; ``parents`` are negative
    where a copy has none."""
    num_slots, prefix = len(set(slots)), rounded_prefix(longest)
    copies, related = rounded_copies(len(slots)), any(parent >= 0 for parent in parents)
    if num_slots == len(slots) and not related:
        return Bucket("alone", copies, copies, prefix)
    kind: Kind = "family" if related or any(stores) else "drafts"
    return Bucket(kind, copies, rounded_slots(num_slots), prefix)


@dataclass(frozen=True)
class SlotPart:
    """One slot's copies ``first`` to ``last``: where its prefix begins in the pool and how long it
    is."""

    first: int
    last: int
    start: int
    length: int


@dataclass(frozen=True)
class Inputs:
    """A bucket's inputs on the device; int32, and int64 where they index."""

    tokens_CL: Tensor
    positions_CL: Tensor
    writes_T: Tensor
    """The pool's row of every token."""
    parents_C: Tensor
    prefix: Problems | None
    own: Problems | None


def layout(bucket: Bucket, block: int) -> dict[str, int]:
    """Names and sizes of the integers that a forward of this bucket reads, in order."""
    copies, problems = bucket.copies, (bucket.slots + 1) * bucket.pieces
    return {
        "tokens": copies * block,
        "starts": copies,
        "writes": copies,
        "parents": copies,
        "seen": copies,
        "met": copies * bucket.pieces,
        "q_ends": problems + 1,
        "k_starts": problems + 1,
        "used": problems,
    }


def pack_inputs(
    bucket: Bucket,
    tokens_CL: Tensor,
    parents: Sequence[int],
    writes: Sequence[int],
    parts: Sequence[SlotPart],
) -> Tensor:
    """All of a batch's integers in one row of int32 on the host, padded to the bucket.

    ``writes`` is the pool's row for a copy's first token, 0 where nothing is kept.
    """
    count, block = tokens_CL.shape
    spare = bucket.copies - count
    # A single copy's own keys lie behind its prefix.
    more = block if bucket.kind == "alone" else 0
    prefixes = [part.length for part in parts for _ in range(part.first, part.last)]
    behind = [block if parent >= 0 else 0 for parent in parents]
    runs = [(part.last, part.start, part.length + more) for part in parts]
    runs += _padding_runs(bucket, count, len(parts))
    pieces = range(bucket.pieces)
    values = {
        "tokens": tokens_CL.flatten().tolist() + [0] * spare * block,
        "starts": [*map(sum, zip(prefixes, behind, strict=True)), *[0] * spare],
        "writes": [*writes, *[0] * spare],
        "parents": [p if p >= 0 else c for c, p in enumerate([*parents, *[-1] * spare])],
        "seen": [block + size for size in [*behind, *[0] * spare]],
        "met": [
            _in_piece(bucket, piece, met)
            for piece in pieces
            for met in [*(prefix + more for prefix in prefixes), *[0] * spare]
        ],
        "q_ends": [0]
        + [(piece * bucket.copies + last) * block for piece in pieces for last, _, _ in runs],
        "k_starts": [start + piece * PIECE for piece in pieces for _, start, _ in runs] + [0],
        "used": [_in_piece(bucket, piece, met) for piece in pieces for _, _, met in runs],
    }
    sizes = layout(bucket, block)
    assert {name: len(column) for name, column in values.items()} == sizes
    return torch.tensor([x for name in sizes for x in values[name]], dtype=torch.int32)


def _padding_runs(bucket: Bucket, count: int, num_slots: int) -> list[tuple[int, int, int]]:
    """Last copy, first key row and keys of the problems that nobody reads: the padding copies, and
    slots that the batch does not fill."""
    lasts = range(count + 1, bucket.copies + 1) if bucket.kind == "alone" else ()
    fill = bucket.slots + 1 - num_slots - len(lasts)
    return [(last, 0, 0) for last in [*lasts, *[bucket.copies] * fill]]


def _in_piece(bucket: Bucket, piece: int, tokens: int) -> int:
    """How many of a prefix's ``tokens`` lie in one piece; the last one takes all that is left."""
    left = max(0, tokens - piece * PIECE)
    return left if piece == bucket.pieces - 1 else min(PIECE, left)


def unpack_inputs(packed: Tensor, bucket: Bucket, block: int) -> Inputs:
    """What :func:`pack_inputs` wrote, by views and small sums on its device."""
    sizes = layout(bucket, block)
    found = dict(zip(sizes, packed.split(list(sizes.values())), strict=True))
    within = torch.arange(block, device=packed.device)
    return Inputs(
        tokens_CL=found["tokens"].view(bucket.copies, block),
        positions_CL=found["starts"][:, None] + within,
        writes_T=(found["writes"][:, None] + within).flatten(),
        parents_C=found["parents"].long(),
        prefix=_prefix_problems(found, bucket, block),
        own=None if bucket.kind == "alone" else _own_problems(found["seen"], bucket, block),
    )


def _prefix_problems(found: dict[str, Tensor], bucket: Bucket, block: int) -> Problems | None:
    """Every slot's queries over its prefix, piece by piece; ``None`` when all are empty."""
    alone = bucket.kind == "alone"
    if not bucket.prefix and not alone:
        return None
    # Of padding alone nobody asks.
    empty_T = (found["met"] == 0)[:, None].expand(-1, block).flatten()
    return Problems(
        found["q_ends"],
        found["k_starts"],
        found["used"],
        None if alone and bucket.pieces == 1 else empty_T,
        max_q=block if alone else bucket.copies * block,
        max_k=bucket.prefix + (block if alone else 0) - (bucket.pieces - 1) * PIECE,
    )


def _own_problems(seen_C: Tensor, bucket: Bucket, block: int) -> Problems:
    """Every copy's queries over its own block, and its parent's behind that."""
    keys = 2 * block if bucket.kind == "family" else block
    at = torch.arange(bucket.copies + 1, dtype=torch.int32, device=seen_C.device)
    return Problems(at * block, at * keys, seen_C, None, block, keys)
