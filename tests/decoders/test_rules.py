"""Which positions a state commits: capped order, threshold, ties."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoders.options import DecodeOptions
from decoders.rules import (
    Step,
    cap_log_odds,
    commit_rank,
    commit_step,
    standard_step,
    threshold_step,
)

NEVER = -math.inf


def logit(p: float) -> float:
    return math.log(p / (1 - p))


def by_rule(log_odds: list[float], options: DecodeOptions) -> Step:
    """Position 10 + i holds token 50 + i."""
    n = len(log_odds)
    return commit_step(np.arange(10, 10 + n), np.arange(50, 50 + n), np.array(log_odds), options)


def standard(log_odds: list[float], cap: float = 1.0) -> int:
    """Index of the position that standard decoding commits."""
    [(position, token)] = by_rule(log_odds, DecodeOptions(cap=cap))
    assert token == position + 40
    return position - 10


def passing(log_odds: list[float], tau: float) -> list[int]:
    """Indices of the positions that threshold decoding commits."""
    step = by_rule(log_odds, DecodeOptions(method="threshold", tau=tau))
    return [position - 10 for position, _ in step]


SURE = [logit(p) for p in (0.3, 0.95, 0.99, 0.7)]


@pytest.mark.parametrize(
    ("cap", "index"),
    [
        (1.0, 2),  # off: the most confident
        (0.97, 2),  # only one position reaches the cap
        (0.9, 1),  # two positions do: the lower one
        (0.7, 1),
        (0.5, 1),  # three do
        (0.2, 0),
        (0.0, 0),  # left to right
    ],
)
def test_cap_turns_sure_positions_into_left_to_right_order(cap: float, index: int) -> None:
    assert standard(SURE, cap) == index


def test_ties_go_to_the_lowest_position() -> None:
    assert standard([1.0, 2.0, 2.0, 2.0]) == 1
    assert standard([math.inf, math.inf]) == 0
    assert standard([0.0, math.inf, math.inf], cap=0.9) == 1


def test_below_the_cap_the_most_confident_wins() -> None:
    assert standard([-3.0, -1.0, -2.0], cap=0.9) == 1


def test_a_position_without_rival_tokens_is_as_sure_as_can_be() -> None:
    assert standard([5.0, math.inf, 700.0]) == 1
    assert passing([math.inf, 0.0], tau=0.99) == [0]


def test_the_cap_in_log_odds() -> None:
    assert cap_log_odds(1.0) == math.inf
    assert cap_log_odds(0.0) == NEVER
    assert cap_log_odds(0.5) == 0.0
    assert cap_log_odds(0.9) == pytest.approx(math.log(9))


@settings(derandomize=True, deadline=None)
@given(
    st.lists(st.floats(allow_nan=False), min_size=1, max_size=8),
    st.sampled_from([1.0, 0.9, 0.5, 0.0]),
)
def test_rank_lists_positions_in_the_order_of_repeated_steps(
    log_odds: list[float], cap: float
) -> None:
    left = list(range(len(log_odds)))
    expected = []
    while left:
        expected.append(left.pop(standard([log_odds[i] for i in left], cap)))
    assert commit_rank(np.array(log_odds), cap).tolist() == expected


def test_threshold_commits_everything_strictly_above() -> None:
    tau = 0.9
    exact = cap_log_odds(tau)
    above = math.nextafter(exact, math.inf)
    assert passing([exact, above, exact - 1, exact + 1], tau) == [1, 3]


def test_threshold_commits_the_top_one_when_nothing_passes() -> None:
    exact = cap_log_odds(0.9)
    assert passing([exact, -2.0, exact], 0.9) == [0]
    assert passing([-5.0, -2.0, -2.0], 0.9) == [1]
    assert passing([NEVER, NEVER], 0.0) == [0]


def test_threshold_zero_commits_all_that_is_possible() -> None:
    assert passing([-50.0, 0.0, 3.0], 0.0) == [0, 1, 2]


def test_threshold_ignores_the_cap() -> None:
    positions, tokens = np.array([4, 6]), np.array([1, 2])
    step = threshold_step(positions, tokens, np.array([-1.0, -0.5]), tau=0.9)
    assert step == ((6, 2),)
    assert standard_step(positions, tokens, np.array([-1.0, -0.5]), cap=0.1) == ((4, 1),)


@settings(derandomize=True, deadline=None)
@given(
    st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=8),
    st.floats(0, 0.999),
)
def test_threshold_always_commits_and_holds_the_standard_step(
    log_odds: list[float], tau: float
) -> None:
    step = by_rule(log_odds, DecodeOptions(method="threshold", tau=tau))
    positions = [position for position, _ in step]
    assert positions == sorted(set(positions))
    assert set(by_rule(log_odds, DecodeOptions())) <= set(step)
