"""Forwards under a mask of their own: for each slot one query of any rows over its cached prefix.

What sees what inside a query is decided by its caller (SimSD's temporal mask); everything sees the
prefix. A full block may be stored in the same forward, in front of its slot's query.

Shapes: Q rows of a query, P prefix, S stored rows (0 or a block), T = S + Q, V vocabulary.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from models.attention import attend_masked
from models.cache import PrefixCache
from models.transformer import Attend, Transformer


@dataclass(frozen=True)
class Query:
    """Rows of one slot. ``offsets`` are rotary positions relative to the block behind the prefix
    (behind ``stored``, where a full block is to be stored first); ``sees_QQ`` is true where the row
    sees the column; ``rows`` ask for logits."""

    slot: int
    tokens: Sequence[int]
    offsets: Sequence[int]
    sees_QQ: Tensor
    rows: Sequence[int]
    stored: Sequence[int] = ()


def forward_queries(
    model: Transformer, caches: Mapping[int, PrefixCache], queries: Sequence[Query]
) -> Tensor:
    """Logits ``[R, V]`` of all queries' ``rows``, one after the other; stores what they say."""
    assert len({query.slot for query in queries}) == len(queries), "one query a slot"
    device = model.norm.weight.device
    tokens, positions, rows, spans = [], [], [], []
    for query in queries:
        first, start = len(tokens), caches[query.slot].length
        behind = start + len(query.stored)
        tokens += [*query.stored, *query.tokens]
        positions += [*range(start, behind), *(behind + offset for offset in query.offsets)]
        rows += [first + len(query.stored) + row for row in query.rows]
        spans.append(slice(first, len(tokens)))
        caches[query.slot].reserve(len(tokens) - first)
    attend = _attend_spans(queries, spans, caches, device)
    hidden = model.hidden(
        torch.tensor(tokens, device=device), torch.tensor(positions, device=device), attend
    )
    for query, span in zip(queries, spans, strict=True):
        if query.stored:
            last = hidden[span.start + len(query.stored) - 1]
            caches[query.slot].advance(len(query.stored), last)
    return model.logits(hidden[torch.tensor(rows, device=device)])


def _attend_spans(
    queries: Sequence[Query],
    spans: Sequence[slice],
    caches: Mapping[int, PrefixCache],
    device: torch.device,
) -> Attend:
    """Each query's rows lie as scratch behind its prefix; one masked attention for each."""
    masks = [whole_mask(query, caches[query.slot].length).to(device) for query in queries]

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = torch.empty_like(q)
        for query, span, mask in zip(queries, spans, masks, strict=True):
            cache = caches[query.slot]
            cache.write(layer, k[span], v[span])
            keys, values = cache.view(layer, span.stop - span.start)
            out[span] = attend_masked(q[span], keys, values, mask)
        return out

    return attend


def whole_mask(query: Query, prefix: int) -> Tensor:
    """``[T, P + T]``: the stored block sees the prefix and itself, the query both and what its own
    mask says."""
    stored, own = len(query.stored), len(query.tokens)
    mask = torch.ones((stored + own, prefix + stored + own), dtype=torch.bool)
    mask[:stored, prefix + stored :] = False
    mask[stored:, prefix + stored :] = query.sees_QQ
    return mask


def pack_queries(queries: Sequence[Query]) -> Tensor:
    """Queries as one row of integers, for ranks that follow."""
    parts: list[int] = []
    for query in queries:
        parts += [query.slot, len(query.tokens), len(query.rows), len(query.stored)]
        parts += [*query.tokens, *query.offsets, *query.rows, *query.stored]
        parts += query.sees_QQ.flatten().tolist()
    return torch.tensor(parts, dtype=torch.int64)


def unpack_queries(message: Tensor) -> list[Query]:
    """The inverse of :func:`pack_queries`."""
    values, queries, at = message.tolist(), [], 0

    def take(count: int) -> list[int]:
        nonlocal at
        at += count
        return values[at - count : at]

    while at < len(values):
        slot, size, rows, stored = take(4)
        tokens, offsets, asked, full = take(size), take(size), take(rows), take(stored)
        sees = torch.tensor(take(size * size), dtype=torch.bool).view(size, size)
        queries.append(Query(slot, tokens, offsets, sees, asked, full))
    return queries
