"""Drills: right sums of the problems' range, for training only."""

import operator
import re

import pytest

from tasks.drills import NUM_SUMS, generate
from tasks.words import MOST

WORKED = re.compile(r"(\d+) ([-+*/]) (\d+) = (\d+)\.")
APPLIED = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


def test_every_sum_is_right_and_within_the_problems_range() -> None:
    for index in range(300):
        problem = generate("train", 5, index)
        sums = WORKED.findall(problem.answer)
        assert NUM_SUMS[0] <= len(sums) <= NUM_SUMS[1]
        for left, sign, right, result in sums:
            assert APPLIED[sign](int(left), int(right)) == int(result)
            assert max(int(left), int(right), int(result)) <= MOST
        asked = ", ".join(f"{left} {sign} {right}" for left, sign, right, _ in sums)
        assert problem.prompt == f"Work out {asked}."


def test_a_drill_is_a_pure_function_of_seed_and_index() -> None:
    assert generate("train", 1, 2) == generate("train", 1, 2)
    assert generate("train", 1, 2) != generate("train", 2, 2)


def test_there_are_no_held_out_drills() -> None:
    with pytest.raises(ValueError, match="'heldout': drills are training text; choose train"):
        generate("heldout", 1, 0)
