"""A soak's verdict: growth is told from noise, and what cannot be told is said to be so."""

import random

import pytest

from benchmarks.resident import Trend, trend

SIZE, HOUR = 1e9, 3600.0


def trend_of(growth: float, noise: float, minutes: float = 15) -> Trend:
    """Of memory that grows by so many bytes an hour, read every 5 seconds."""
    draw = random.Random(0)
    seconds = [5.0 * k for k in range(int(12 * minutes))]
    return trend(seconds, [SIZE + growth * t / HOUR + draw.gauss(0, noise) for t in seconds])


def test_growth_is_told_from_noise_and_from_peaks() -> None:
    flat, leak = trend_of(growth=0, noise=2e6), trend_of(growth=1e8, noise=2e6)
    assert (flat.verdict(3), leak.verdict(3)) == ("flat", "grows")
    assert leak.low < 1e8 < leak.high
    assert trend_of(growth=0, noise=1e8, minutes=2).verdict(3) == "undecided"
    seconds = [5.0 * k for k in range(180)]
    peaks = [SIZE * (1.5 if k % 20 == 7 else 1) for k in range(180)]
    assert trend(seconds, peaks) == Trend(SIZE, 0, 0, 0)


def test_too_few_samples_have_no_trend() -> None:
    with pytest.raises(ValueError, match="3 samples of memory; a trend takes at least 12"):
        trend([0, 5, 10], [SIZE] * 3)
