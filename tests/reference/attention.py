"""Softmax attention element by element, in plain Python floats."""

import math
from collections.abc import Callable, Sequence

Rows = Sequence[Sequence[Sequence[float]]]
"""``rows[token][head][component]``"""


def attention(q: Rows, k: Rows, v: Rows, sees: Callable[[int, int], bool]) -> Rows:
    """``sees(i, j)`` says whether query i may look at key j; query head h uses key head h // G."""
    group = len(q[0]) // len(k[0])
    return [
        [
            _mix(
                query,
                [(k[j][h // group], v[j][h // group]) for j in range(len(k)) if sees(i, j)],
            )
            for h, query in enumerate(heads)
        ]
        for i, heads in enumerate(q)
    ]


def _mix(
    query: Sequence[float], seen: list[tuple[Sequence[float], Sequence[float]]]
) -> list[float]:
    scale = 1 / math.sqrt(len(query))
    weights = [
        math.exp(scale * math.fsum(a * b for a, b in zip(query, key, strict=True)))
        for key, _ in seen
    ]
    total = math.fsum(weights)
    return [
        math.fsum(w * value[c] for w, (_, value) in zip(weights, seen, strict=True)) / total
        for c in range(len(query))
    ]
