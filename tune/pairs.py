"""The dear fidelity: a setting on the target, in interleaved pairs with its baseline.

Pairs share prompts and follow each other at once, in alternating order, so that what slows the
machine down for a while slows both sides.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.interval import is_narrow, median_interval
from decoders.options import DecodeOptions
from tune.config import LiveConfig
from tune.cost import Generator
from tune.row import Spread

Row = Mapping[str, Any]
Judge = Callable[["Pairs"], str | None]
"""Says why a trial need not go on, or nothing."""


@dataclass
class Side:
    """One side's rows of the first pass, in the order of the prompts, the tokens of every batch (of
    any pass), seconds ``[batch][pass]``, and the seconds of every answer."""

    rows: list[Row] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    seconds: list[list[float]] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)

    @property
    def nfe(self) -> int:
        return sum(row["nfe"] for row in self.rows)

    @property
    def tokens_per_second(self) -> float:
        """At every batch's median over the passes."""
        return sum(self.tokens) / sum(float(np.median(batch)) for batch in self.seconds)

    @property
    def latency_p95(self) -> float:
        """Seconds that 95 % of the answers took at most."""
        return float(np.percentile(self.latencies, 95))


@dataclass(frozen=True)
class Pairs:
    """A setting and what it was interleaved with; the reference stands alone (``base`` is
    ``own``)."""

    own: Side
    base: Side
    stopped: str | None = None
    """Why the passes ended early."""

    def speed(self) -> Spread:
        """Ratio of tokens/s over all pairs: every batch in every pass. Both sides' tokens are those
        of the pair: where texts differ, one long answer must not speed up all the others."""
        ratios: list[float] = []
        for index, (base, own) in enumerate(zip(self.base.seconds, self.own.seconds, strict=True)):
            theirs = self.base.tokens[index]
            gain = self.own.tokens[index] / theirs if theirs else 1.0
            ratios += [gain * b / o for b, o in zip(base, own, strict=True)]
        q25, median, q75 = (float(q) for q in np.percentile(ratios, (25, 50, 75)))
        low, high = median_interval(ratios) or (None, None)
        return Spread(median=median, q25=q25, q75=q75, low=low, high=high)


def measure_pairs(
    group: Generator,
    rows: Sequence[Row],
    options: DecodeOptions,
    baseline: DecodeOptions,
    effort: LiveConfig,
    first: int,
    judge: Judge,
) -> Pairs:
    """Passes over ``rows`` as ``effort`` asks, after a warm-up of both sides; ``judge`` may end
    them behind the ``first`` rows and between passes: what is measured to its end is kept as such.
    """
    sides = [(Side(), options)]
    if baseline != options:
        sides.append((Side(), baseline))
    pairs = Pairs(sides[0][0], sides[-1][0])
    for _, chosen in sides:
        group.generate(rows[:1], chosen)
    size = options.batch_size
    batches = [rows[i : i + size] for i in range(0, len(rows), size)]
    for number, (turn, some) in enumerate(
        _stretches(len(batches), -(-first // size), effort, pairs)
    ):
        if number and (reason := judge(pairs)) is not None:
            return Pairs(pairs.own, pairs.base, reason)
        for index in some:
            order = sides if (turn + index) % 2 == 0 else sides[::-1]
            for side, chosen in order:
                _decode(group, batches[index], chosen, side, turn, index)
    return pairs


def _stretches(
    count: int, first: int, effort: LiveConfig, pairs: Pairs
) -> Iterator[tuple[int, range]]:
    """Which of ``count`` batches are decoded in which pass, before the trial is judged again."""
    if first < count:
        yield 0, range(first)
    yield 0, range(first if first < count else 0, count)
    turn = 1
    while turn < effort.repeats or _go_on(turn, effort, pairs):
        yield turn, range(count)
        turn += 1


def _go_on(turn: int, effort: LiveConfig, pairs: Pairs) -> bool:
    """Whether a precision is asked for that is not reached yet; a side alone has no ratio."""
    if effort.precision is None or turn >= effort.max_repeats or pairs.own is pairs.base:
        return False
    return not is_narrow(pairs.speed().interval, effort.precision)


def _decode(
    group: Generator,
    batch: Sequence[Row],
    options: DecodeOptions,
    side: Side,
    turn: int,
    index: int,
) -> None:
    started = time.perf_counter()
    found = group.generate(batch, options, trace=True)
    seconds = time.perf_counter() - started
    side.latencies += [row["seconds"] for row in found]
    if turn == 0:
        side.rows += found
        side.tokens.append(sum(len(row["token_ids"]) for row in found))
        side.seconds.append([])
    side.seconds[index].append(seconds)
