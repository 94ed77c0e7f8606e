"""The shared budget: what is taken is closed, and worth more than any other choice."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoders.allotment import allot, best_allotment, closed_masses
from decoders.proposers.base import Place
from decoders.state import State

MASK = 3
MASSES = st.lists(st.floats(0, 1), max_size=4)


def here(*states: State) -> list[Place]:
    return [(None, state) for state in states]


def test_a_draft_is_worth_no_more_than_the_best_draft_that_leads_to_it() -> None:
    root = (MASK, MASK, MASK, 9)
    a, b, ab, abc = (5, MASK, MASK, 9), (MASK, 6, MASK, 9), (5, 6, MASK, 9), (5, 6, 7, 9)
    found = closed_masses(root, here(a, b, ab, abc), [0.5, 0.3, 0.8, 0.1], MASK)
    assert found == [0.5, 0.3, 0.5, 0.1]


def test_a_draft_that_nothing_leads_to_is_worth_nothing() -> None:
    root = (MASK, MASK, MASK, 9)
    assert closed_masses(root, here((5, 6, MASK, 9)), [0.9], MASK) == [0.0]


def test_a_copy_of_the_next_block_is_worth_no_more_than_the_full_draft_before_it() -> None:
    root, full, other = (MASK, 9), (5, 9), (6, 9)
    blank, first, second = (MASK, MASK), (MASK, 7), (8, 7)
    places = [(None, full), (full, blank), (full, first), (full, second), (None, other)]
    masses = closed_masses(root, [*places, (other, first)], [0.5, 0.9, 0.4, 0.6, 0.2, 0.3], MASK)
    assert masses == [0.5, 0.5, 0.4, 0.4, 0.2, 0.2]
    assert closed_masses(root, [(full, blank)], [0.9], MASK) == [0.0], "nothing carries it"


def brute_force(masses: list[list[float]], base: int, seconds: np.ndarray, rate: float) -> float:
    """The best value of any choice of any drafts."""
    flat = [mass for row in masses for mass in row]
    return max(
        sum(m for m, keep in zip(flat, kept, strict=True) if keep)
        - rate * seconds[base + sum(kept)]
        for kept in product((0, 1), repeat=len(flat))
    )


@given(
    st.lists(MASSES, min_size=1, max_size=3).filter(lambda rows: sum(map(len, rows)) <= 9),
    st.integers(1, 4),
    st.lists(st.floats(0.0, 2.0), min_size=14, max_size=14),
    st.floats(0.01, 5.0),
)
def test_no_other_choice_is_worth_more(
    masses: list[list[float]], base: int, increments: list[float], rate: float
) -> None:
    """The price may have any steps."""
    seconds = np.cumsum([0.0, *increments])
    taken = allot(masses, base, seconds, rate)
    gain = sum(row[i] for row, indices in zip(masses, taken, strict=True) for i in indices)
    value = gain - rate * seconds[base + sum(map(len, taken))]
    assert value == pytest.approx(brute_force(masses, base, seconds, rate), abs=1e-9)


def test_free_copies_take_every_draft_and_dear_ones_none() -> None:
    masses = [[0.9, 0.5], [0.01]]
    assert allot(masses, 2, np.ones(9), rate=1.0) == [[0, 1], [0]]
    assert allot(masses, 2, np.arange(9.0), rate=1.0) == [[], []]


def test_requests_compete_by_mass() -> None:
    masses = [[0.9, 0.2], [0.8, 0.7, 0.6]]
    assert allot(masses, 2, np.arange(9.0), rate=0.65) == [[0], [0, 1]]


def test_a_step_of_the_price_is_filled() -> None:
    """Up to four copies cost what two cost: a climb by single drafts would stop before."""
    seconds = np.array([0, 1, 1, 2.2, 2.2, 2.2, 9])
    assert allot([[0.5, 0.5, 0.5, 0.5]], 1, seconds, rate=1.0) == [[0, 1, 2, 3]]


@given(
    st.lists(MASSES, min_size=1, max_size=3).filter(lambda rows: sum(map(len, rows)) <= 8),
    st.integers(0, 2),
    st.lists(st.floats(0.01, 2.0), min_size=14, max_size=14),
)
def test_no_other_choice_makes_more_steps_a_second(
    masses: list[list[float]], stores: int, increments: list[float]
) -> None:
    seconds = np.cumsum([0.0, *increments])
    requests = len(masses)
    base = requests + stores
    flat = [mass for row in masses for mass in row]

    def speed(gain: float, copies: int) -> float:
        return (requests + gain) / seconds[base + copies]

    taken = best_allotment(masses, base, seconds, requests)
    gain = sum(row[i] for row, indices in zip(masses, taken, strict=True) for i in indices)
    best = max(
        speed(sum(m * keep for m, keep in zip(flat, kept, strict=True)), sum(kept))
        for kept in product((0, 1), repeat=len(flat))
    )
    assert speed(gain, sum(map(len, taken))) == pytest.approx(best)
