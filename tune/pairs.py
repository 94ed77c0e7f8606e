"""The dear fidelity: a setting on the target, in interleaved pairs with its baseline.

Pairs share prompts and follow each other at once, in alternating order, so that what slows the
machine down for a while slows both sides.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from decoders.options import DecodeOptions
from tune.cost import Generator
from tune.row import Spread

Row = Mapping[str, Any]


@dataclass
class Side:
    """One side's rows of the first pass, in the order of the prompts, and seconds
    ``[pass][batch]``."""

    rows: list[Row] = field(default_factory=list)
    seconds: list[list[float]] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        return sum(len(row["token_ids"]) for row in self.rows)

    @property
    def nfe(self) -> int:
        return sum(row["nfe"] for row in self.rows)

    @property
    def tokens_per_second(self) -> float:
        """At every batch's median over the passes."""
        return self.tokens / float(np.median(self.seconds, axis=0).sum())


@dataclass(frozen=True)
class Pairs:
    """A setting and what it was interleaved with; the reference stands alone (``base`` is
    ``own``)."""

    own: Side
    base: Side

    def speed(self) -> Spread:
        """Ratio of tokens/s over all pairs: every batch in every pass."""
        tokens = self.own.tokens / self.base.tokens if self.base.tokens else 1.0
        ratios = np.array(self.base.seconds) / np.array(self.own.seconds) * tokens
        q25, median, q75 = (float(q) for q in np.percentile(ratios, (25, 50, 75)))
        return Spread(median=median, q25=q25, q75=q75)


def measure_pairs(
    group: Generator,
    rows: Sequence[Row],
    options: DecodeOptions,
    baseline: DecodeOptions,
    repeats: int,
) -> Pairs:
    """``repeats`` passes over ``rows``, after a warm-up of both sides."""
    own = Side()
    sides = [(own, options)]
    if baseline != options:
        sides.append((Side(), baseline))
    for _, chosen in sides:
        group.generate(rows[:1], chosen)
    batches = [rows[i : i + options.batch_size] for i in range(0, len(rows), options.batch_size)]
    for turn in range(repeats):
        for side, _ in sides:
            side.seconds.append([])
        for index, batch in enumerate(batches):
            order = sides if (turn + index) % 2 == 0 else sides[::-1]
            for side, chosen in order:
                _decode(group, batch, chosen, side, keep=turn == 0)
    return Pairs(own, sides[-1][0])


def _decode(
    group: Generator, batch: Sequence[Row], options: DecodeOptions, side: Side, keep: bool
) -> None:
    started = time.perf_counter()
    found = group.generate(batch, options, trace=True)
    side.seconds[-1].append(time.perf_counter() - started)
    if keep:
        side.rows += found
