"""From samples to numbers: latencies, throughput, goodput, and ratios of two endpoints."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from benchmarks.load.client import Sample
from benchmarks.load.config import Limits

PERCENTILES = (50, 95, 99)
RESAMPLES = 2000

Turn = Sequence[Sample]
"""What was sent in one go: it begins at 0 and ends with its last answer."""


def percentiles(values: Iterable[float | None]) -> dict[str, float] | None:
    """p50, p95 and p99 of the values that are there (linear between neighbours)."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    found = np.percentile(known, PERCENTILES)
    return {f"p{p}": round(float(v), 6) for p, v in zip(PERCENTILES, found, strict=True)}


def span(turn: Turn) -> float:
    """Seconds from the first request to the last answer."""
    return max(s.sent + s.seconds for s in turn) - min(s.sent for s in turn)


def kept(sample: Sample, limits: Limits) -> bool:
    """Whether an answer keeps all limits; a time that it has not keeps every limit."""
    pairs = (
        (sample.first_text, limits.first_text),
        (sample.per_token, limits.per_token),
        (sample.seconds, limits.seconds),
    )
    within = (a is None or most is None or a <= most for a, most in pairs)
    return sample.error is None and all(within)


def summarize(turns: Sequence[Turn], limits: Limits) -> dict[str, Any]:
    """All numbers of one endpoint at one level. Errors count in no latency, and in all rates
    through the time that they took."""
    samples = [sample for turn in turns for sample in turn]
    answered = [sample for sample in samples if sample.error is None]
    seconds = sum(map(span, turns))
    errors = Counter(sample.error for sample in samples if sample.error is not None)
    good = sum(kept(sample, limits) for sample in samples)
    tokens = sum(sample.tokens for sample in answered)
    forwards = [sample.nfe for sample in answered if sample.nfe is not None]
    return {
        "requests": len(samples),
        "answered": len(answered),
        "errors": dict(errors),
        "said": {sample.error: sample.said for sample in reversed(samples) if sample.said},
        "duration": round(seconds, 6),
        "requests_per_second": round(len(answered) / seconds, 6),
        "tokens_per_second": round(tokens / seconds, 6),
        "tokens": tokens,
        "nfe": sum(forwards) if len(forwards) == len(answered) and answered else None,
        "first_text": percentiles(sample.first_text for sample in answered),
        "per_token": percentiles(sample.per_token for sample in answered),
        "gap": percentiles(gap for sample in answered for gap in sample.gaps),
        "seconds": percentiles(sample.seconds for sample in answered),
        "goodput": {
            "limits": limits.model_dump(exclude_none=True),
            "share": round(good / len(samples), 6),
            "per_second": round(good / seconds, 6),
        },
        "late": percentiles(sample.late for sample in samples),
    }


def compare(ours: Sequence[Turn], theirs: Sequence[Turn], seed: int) -> dict[str, Any]:
    """Ratios of the first endpoint to the second, with 95 % intervals.

    Times are paired request by request, where both were answered; throughput turn by turn. Each
    ratio is a geometric mean, its interval a bootstrap over the turns.
    """
    turns = [
        [(a, b) for a, b in zip(*pair, strict=True) if a.error is None and b.error is None]
        for pair in zip(ours, theirs, strict=True)
    ]
    times: dict[str, Callable[[Sample], float | None]] = {
        "first_text": lambda sample: sample.first_text,
        "per_token": lambda sample: sample.per_token,
        "seconds": lambda sample: sample.seconds,
    }
    found: dict[str, Any] = {
        name: ratio([[(read(a), read(b)) for a, b in pairs] for pairs in turns], seed)
        for name, read in times.items()
    }
    rates = [[(_rate(a), _rate(b))] for a, b in zip(ours, theirs, strict=True)]
    found["tokens_per_second"] = ratio(rates, seed)
    same = sum(a.text == b.text for pairs in turns for a, b in pairs)
    return found | {"pairs": sum(map(len, turns)), "same_text": same}


def _rate(turn: Turn) -> float:
    return sum(sample.tokens for sample in turn if sample.error is None) / span(turn)


def ratio(
    turns: Sequence[Sequence[tuple[float | None, float | None]]], seed: int
) -> dict[str, float] | None:
    """Geometric mean of ``a / b`` over the pairs of all turns that have both, with its 95 %
    interval. Whole turns are drawn for it: what slows one down slows all of its requests, so that
    pairs drawn one by one would look surer than they are. One turn alone has no interval."""
    logs = [[math.log(a / b) for a, b in pairs if a and b] for pairs in turns]
    sums, counts = (np.array([f(own) for own in logs if own]) for f in (sum, len))
    if not len(counts):
        return None
    found = {"n": int(counts.sum()), "ratio": round(math.exp(sums.sum() / counts.sum()), 6)}
    if len(counts) > 1:
        drawn = np.random.default_rng(seed).integers(len(counts), size=(RESAMPLES, len(counts)))
        means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
        low, high = np.exp(np.percentile(means, (2.5, 97.5)))
        found |= {"low": round(float(low), 6), "high": round(float(high), 6)}
    return found
