"""The closed formula against drawing rounds, and which rounds it may be compared with."""

import random

import pytest

from benchmarks.simsd.formula import (
    Masked,
    acceptance_by_depth,
    expected_commits,
    forwards_per_token,
    mean_acceptance,
    whole_rounds,
)
from decoders.options import DecodeOptions
from decoders.request import Request, Result, Round


def drawn(acceptances: list[float], more: bool, draw: random.Random) -> Masked:
    accepted = 0
    while accepted < len(acceptances) and draw.random() < acceptances[accepted]:
        accepted += 1
    own = 1 if accepted < len(acceptances) or more else 0
    return Masked(len(acceptances) + more, len(acceptances), accepted, accepted + own)


@pytest.mark.parametrize("more", [False, True])
def test_expected_commits_are_the_mean_of_drawn_rounds(more: bool) -> None:
    draw, acceptances = random.Random(0), [0.9, 0.5, 0.7]
    rounds = [drawn(acceptances, more, draw) for _ in range(20_000)]
    mean = sum(each.commits for each in rounds) / len(rounds)
    assert mean == pytest.approx(expected_commits(acceptances, more), rel=0.02)
    assert acceptance_by_depth(rounds) == pytest.approx(acceptances, abs=0.02)


def test_one_acceptance_is_the_geometric_sum() -> None:
    a, g = 0.8, 5
    assert expected_commits([a] * g, False) == pytest.approx((1 - a**g) / (1 - a))
    assert expected_commits([a] * g, True) == pytest.approx((1 - a ** (g + 1)) / (1 - a))
    assert expected_commits([1.0] * g, False) == g


def test_forwards_a_token_follow_the_formula_where_every_token_passes_alike() -> None:
    draw = random.Random(1)
    rounds = [drawn([0.8] * 4, more, draw) for more in (False, True) for _ in range(10_000)]
    found = forwards_per_token(rounds)
    assert mean_acceptance(rounds) == pytest.approx(0.8, abs=0.01)
    assert found["formula"] == pytest.approx(found["measured"], rel=0.02)
    assert found["by_depth"] == pytest.approx(found["measured"], rel=0.02)
    assert forwards_per_token([]) == {}


def result(prompt: int, *commits: int) -> Result:
    rounds = [
        Round("verify", n, n - 1, tuple(((0, 5),) for _ in range(n))) if n else Round("prefill")
        for n in commits
    ]
    request = Request("a", (5,) * prompt, DecodeOptions(method="simsd"))
    return Result(request, (), "length", tuple(rounds), 0.0)


def test_a_round_that_the_end_of_the_text_cut_is_left_out() -> None:
    assert [r.open_before for r in whole_rounds(result(5, 0, 3, 2, 1), block=4)] == [3, 4]
    assert [r.open_before for r in whole_rounds(result(5, 0, 3, 2, 2), block=4)] == [3, 4, 2]
    assert whole_rounds(result(8, 1), block=4) == []
