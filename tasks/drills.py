"""Arithmetic drills: training text only, so that a small model meets many sums in few tokens.

The sums are those of training word problems, in the form in which replies write them; nothing is
ever evaluated on a drill.
"""

import random
import re

from tasks import words
from tasks.problem import Problem, Split

NUM_SUMS = (4, 9)
_EQUATION = re.compile(r"\d+ [-+*/] \d+ = \d+")


def generate(split: Split, seed: int, index: int) -> Problem:
    """Drill number ``index``: a pure function of its arguments; there are only training drills."""
    if split != "train":
        raise ValueError(f"split {split!r}: drills are training text; choose train")
    rng = random.Random(f"drills|{seed}|{index}")
    wanted = rng.randint(*NUM_SUMS)
    sums: list[str] = []
    while len(sums) < wanted:
        problem = words.generate("train", seed, rng.randrange(1 << 40))
        sums += _EQUATION.findall(problem.answer)
    rng.shuffle(sums)
    sums = sums[:wanted]
    asked = ", ".join(equation.partition(" =")[0] for equation in sums)
    return Problem(
        id=f"drills-{split}-{seed}-{index}",
        task="drills",
        prompt=f"Work out {asked}.",
        answer="\n".join(f"{equation}." for equation in sums),
        gold=(),
        kinds=("drills",),
    )
