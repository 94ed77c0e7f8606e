"""Arithmetic drills: training text only, so that a small model meets many sums in few tokens.

The sums have the form and the range of those in word problems' replies; nothing is ever evaluated
on a drill. Sums and differences are drawn more often than in the problems, and those of single
digits, on which the others build, have a share of their own: both are what a small model learns
last.
"""

import random

from tasks.problem import Problem, Split
from tasks.words import MOST

NUM_SUMS = (5, 9)
OPERATORS = {"+": 0.42, "-": 0.42, "*": 0.1, "/": 0.06}
SINGLE_DIGITS = 0.3
"""Share of the sums and differences that are those of two single digits."""


def generate(split: Split, seed: int, index: int) -> Problem:
    """Drill number ``index``: a pure function of its arguments; there are only training drills."""
    if split != "train":
        raise ValueError(f"split {split!r}: drills are training text; choose train")
    rng = random.Random(f"drills|{seed}|{index}")
    sums = [_sum(rng) for _ in range(rng.randint(*NUM_SUMS))]
    return Problem(
        id=f"drills-{split}-{seed}-{index}",
        task="drills",
        prompt=f"Work out {', '.join(asked for asked, _ in sums)}.",
        answer="\n".join(f"{asked} = {result}." for asked, result in sums),
        gold=(),
        kinds=("drills",),
    )


def _sum(rng: random.Random) -> tuple[str, int]:
    """What is asked ("17 + 4") and its result, all numbers within 0..MOST."""
    (operator,) = rng.choices(list(OPERATORS), list(OPERATORS.values()))
    if operator in "*/":
        right = rng.randint(2, 9)
        left = rng.randint(1, MOST // right)
        if operator == "/":
            return f"{left * right} / {right}", left
        left, right = rng.sample((left, right), 2)
        return f"{left} * {right}", left * right
    if rng.random() < SINGLE_DIGITS:
        left, right = rng.randint(1, 9), rng.randint(1, 9)
    else:
        total = rng.randint(2, MOST)
        left = rng.randint(1, total - 1)
        right = total - left
    if operator == "+":
        return f"{left} + {right}", left + right
    return f"{left + right} - {right}", left
