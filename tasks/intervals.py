"""Confidence intervals that stand beside every score."""

import math
from collections.abc import Sequence

Z_95 = 1.959964


def wilson_interval(correct: int, n: int, z: float = Z_95) -> tuple[float, float]:
    """Wilson's score interval of a share, 95 % unless ``z`` says otherwise; (0, 1) without data."""
    if not 0 <= correct <= n:
        raise ValueError(f"correct {correct} is not within 0..{n}")
    if n == 0:
        return 0.0, 1.0
    share = correct / n
    scale = 1 + z * z / n
    middle = (share + z * z / (2 * n)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)


def paired_bound(ours: Sequence[bool], theirs: Sequence[bool], z: float = Z_95) -> float:
    """How far ``ours`` may lie below ``theirs`` at most: the lower end of the difference's interval
    with half a problem added to each of the four outcomes of a pair (Agresti and Min, 2005).

    Unlike that of :func:`paired_interval` it does not shrink to nothing where a few problems happen
    to agree: of n that all do it is z / (n + 2).
    """
    lost = sum(b and not a for a, b in zip(ours, theirs, strict=True)) + 0.5
    won = sum(a and not b for a, b in zip(ours, theirs, strict=True)) + 0.5
    n = len(ours) + 2
    mean = (won - lost) / n
    return mean - z * math.sqrt(((won + lost) / n - mean**2) / n)


def paired_interval(
    ours: Sequence[bool], theirs: Sequence[bool], z: float = Z_95
) -> tuple[float, float]:
    """Interval of the difference of two accuracies on the same problems (ours minus theirs),
    from the problems' own differences; their spread is taken over n, not over n - 1."""
    if len(ours) != len(theirs):
        raise ValueError(f"paired scores of {len(ours)} and {len(theirs)} problems")
    if not ours:
        return -1.0, 1.0
    differences = [int(a) - int(b) for a, b in zip(ours, theirs, strict=True)]
    n = len(differences)
    mean = sum(differences) / n
    spread = math.sqrt(sum((d - mean) ** 2 for d in differences) / n)
    half = z * spread / math.sqrt(n)
    return mean - half, mean + half
