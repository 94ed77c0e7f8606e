"""The interval that stands beside a measured ratio."""

from collections.abc import Sequence
from math import comb, exp, hypot, log

OUTSIDE = 0.025
"""How likely the median lies beyond either end, at most: 95 % in all."""


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """95 % interval of the median, from the order of the values alone (the sign test's): nothing is
    assumed of their distribution, and one slow outlier moves it little.

    None for fewer than six values, which cannot say so much.
    """
    ordered, n = sorted(values), len(values)
    beyond, rank = 0.0, 0
    while rank < n and (beyond := beyond + comb(n, rank) / 2**n) <= OUTSIDE:
        rank += 1
    return (ordered[rank - 1], ordered[n - rank]) if rank else None


def product_interval(
    one: tuple[float, float, float], other: tuple[float, float, float]
) -> tuple[float, float]:
    """95 % interval of the product of two independent ratios, each given as its low end, middle and
    high end: their distances from the middle, as logarithms, add up in squares (MOVER; Zou and
    Donner, 2008)."""
    middle = one[1] * other[1]
    below = hypot(*(log(m / low) for low, m, _ in (one, other)))
    above = hypot(*(log(high / m) for _, m, high in (one, other)))
    return middle * exp(-below), middle * exp(above)


def is_narrow(interval: tuple[float, float] | None, precision: float) -> bool:
    """Whether it reaches at most ``precision`` of its middle to either side."""
    if interval is None:
        return False
    low, high = interval
    return (high - low) / (high + low) <= precision
