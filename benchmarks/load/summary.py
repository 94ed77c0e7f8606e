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
    ratio is a geometric mean, its interval a bootstrap over the pairs.
    """
    pairs = [
        (a, b)
        for turn_a, turn_b in zip(ours, theirs, strict=True)
        for a, b in zip(turn_a, turn_b, strict=True)
        if a.error is None and b.error is None
    ]
    times: dict[str, Callable[[Sample], float | None]] = {
        "first_text": lambda sample: sample.first_text,
        "per_token": lambda sample: sample.per_token,
        "seconds": lambda sample: sample.seconds,
    }
    found: dict[str, Any] = {
        name: ratio([(read(a), read(b)) for a, b in pairs], seed) for name, read in times.items()
    }
    rates = [(_rate(a), _rate(b)) for a, b in zip(ours, theirs, strict=True)]
    found["tokens_per_second"] = ratio(rates, seed)
    same = sum(a.text == b.text for a, b in pairs)
    return found | {"pairs": len(pairs), "same_text": same}


def _rate(turn: Turn) -> float:
    return sum(sample.tokens for sample in turn if sample.error is None) / span(turn)


def ratio(pairs: Sequence[tuple[float | None, float | None]], seed: int) -> dict[str, float] | None:
    """Geometric mean of ``a / b`` over the pairs that have both, with its 95 % interval (which one
    pair alone has not)."""
    logs = np.array([math.log(a / b) for a, b in pairs if a and b])
    if not len(logs):
        return None
    found = {"n": len(logs), "ratio": round(math.exp(logs.mean()), 6)}
    if len(logs) > 1:
        rng = np.random.default_rng(seed)
        means = rng.choice(logs, (RESAMPLES, len(logs))).mean(axis=1)
        low, high = np.exp(np.percentile(means, (2.5, 97.5)))
        found |= {"low": round(float(low), 6), "high": round(float(high), 6)}
    return found
