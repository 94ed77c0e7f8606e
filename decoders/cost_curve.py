"""What a forward costs on this machine, by the number of block copies and the prefix before them.

Measured, not modelled: a forward's price has steps (caches, kernels, graph buckets) that no formula
knows. The curve is piecewise linear in copies, and linear in the prefix.
"""

from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Protocol

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from models.digests import write_kept
from models.spec import TargetSpec
from models.target import NO_PARENT, CopyBatch

KNOTS = (1, 2, 3, 5, 9, 17, 33, 65)
"""Copies at which a forward is timed."""
PREFIXES = (2, 16)
"""Prefix lengths at which it is timed, in blocks."""
REPEATS = 5
MOST_SECONDS = 1.0
"""A forward that takes longer is timed no further up: the curve goes on with its last slope."""
FORMAT = 2
"""Of a kept curve; another number is another measurement."""


class Timed(Protocol):
    """What is used of a target: the loop's own calls."""

    spec: TargetSpec

    def open_slot(self, slot: int, length: int = 0, refresh: int = 0) -> None: ...
    def close_slot(self, slot: int) -> None: ...
    def prefill(self, slot: int, tokens: "tuple[int, ...]") -> None: ...
    def forward(self, batch: CopyBatch) -> Tensor: ...


class CostCurve(BaseModel):
    """Seconds of a forward: ``seconds[p][k]`` behind ``prefixes[p]`` tokens with ``knots[k]``
    copies."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    knots: tuple[int, ...]
    prefixes: tuple[int, ...]
    seconds: tuple[tuple[float, ...], ...]

    def at(self, copies: int, prefix: float = 0.0) -> float:
        """Seconds of a forward over ``copies`` block copies behind ``prefix`` tokens (the mean over
        its requests); beyond the last knot it goes on with the last slope."""
        return float(self.upto(copies, prefix)[copies])

    def upto(self, copies: int, prefix: float = 0.0) -> np.ndarray:
        """Seconds ``[copies + 1]`` of forwards over 0, 1, ... ``copies`` copies; none cost 0."""
        short, long = (self._over(copies, row) for row in (self.seconds[0], self.seconds[-1]))
        span = self.prefixes[-1] - self.prefixes[0]
        share = (prefix - self.prefixes[0]) / span if span else 0.0
        found = short + max(0.0, share) * np.maximum(0.0, long - short)
        found[0] = 0.0
        return found

    def _over(self, copies: int, row: Sequence[float]) -> np.ndarray:
        counts = np.arange(copies + 1)
        inside = np.interp(counts, self.knots, row)
        if len(self.knots) == 1:
            return inside * counts / self.knots[0]
        slope = (row[-1] - row[-2]) / (self.knots[-1] - self.knots[-2])
        return inside + slope * np.maximum(0, counts - self.knots[-1])


def measure_cost_curve(target: Timed, slot: int, most: int = KNOTS[-1]) -> CostCurve:
    """Time forwards of up to ``most`` copies of one request in a free ``slot``.

    The median of a few; more copies, or a longer prefix, never count as cheaper. The climb ends at
    a forward of more than ``MOST_SECONDS``, which bounds the wait.
    """
    spec = target.spec
    room = spec.max_positions // spec.block_size - 2
    prefixes = sorted({max(0, min(blocks, room)) * spec.block_size for blocks in PREFIXES})
    knots = tuple(k for k in KNOTS if k <= most)
    rows = []
    target.open_slot(slot)
    try:
        length = 0
        for prefix in prefixes:
            if prefix > length:
                target.prefill(slot, _filler(spec, prefix - length))
                length = prefix
            row = _time_forwards(target, slot, knots)
            knots = knots[: len(row)]
            rows.append(row)
    finally:
        target.close_slot(slot)
    cut = np.array([row[: len(knots)] for row in rows])
    seconds = np.maximum.accumulate(np.maximum.accumulate(cut, axis=1), axis=0)
    return CostCurve(
        knots=knots, prefixes=tuple(prefixes), seconds=tuple(map(tuple, seconds.tolist()))
    )


def _filler(spec: TargetSpec, count: int) -> tuple[int, ...]:
    return tuple(token for token in range(3) if token != spec.mask_token_id)[:1] * count


def _time_forwards(target: Timed, slot: int, knots: Sequence[int]) -> list[float]:
    """For each number of copies the median of a few forwards, the first one of its shape left out.

    All are timed in turn, again and again: a slow moment of the machine then raises the whole
    curve, and its slope, which decides what a draft is worth, stays right.
    """
    turns: list[list[float]] = []
    for _ in range(1 + REPEATS):
        turn: list[float] = []
        for copies in knots:
            turn.append(_time_forward(target, slot, copies))
            if turn[-1] > MOST_SECONDS and len(turn) > 1:
                break
        knots = knots[: len(turn)]
        turns.append(turn)
    return [median(turn[index] for turn in turns[1:]) for index in range(len(knots))]


def _time_forward(target: Timed, slot: int, copies: int) -> float:
    block, mask_id = target.spec.block_size, target.spec.mask_token_id
    half = torch.arange(block // 2, block)
    batch = CopyBatch(
        [slot] * copies,
        torch.full((copies, block), mask_id),
        [NO_PARENT] * copies,
        [False] * copies,
        (torch.arange(copies)[:, None] * block + half).flatten(),
    )
    started = perf_counter()
    target.forward(batch).argmax(dim=1).cpu()
    return perf_counter() - started


def cached_cost_curve(
    target: Timed, slot: int, folder: Path, key: Sequence[object], *, anew: bool = False
) -> CostCurve:
    """The curve of an earlier measurement with the same ``key``, else a new one, kept in ``folder``
    where that can be written; ``anew`` replaces the kept one."""
    told = repr((FORMAT, KNOTS, PREFIXES, *key))
    path = folder / f"cost-{blake2b(told.encode(), digest_size=8).hexdigest()}.json"
    with suppress(OSError, ValueError):
        if not anew:
            return CostCurve.model_validate_json(path.read_text())
    curve = measure_cost_curve(target, slot)
    write_kept(path, curve.model_dump_json(), "cost curve")
    return curve
