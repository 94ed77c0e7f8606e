"""The bundled tasks by name, batch scoring, and the intervals beside every score."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from tasks import bundled, judging
from tasks.intervals import paired_interval, wilson_interval


@pytest.mark.parametrize("name", sorted(bundled.TASKS))
def test_fewer_problems_are_a_prefix_of_more(name: str) -> None:
    assert bundled.problems(name, "heldout", 5, seed=3)[:2] == bundled.problems(
        name, "heldout", 2, seed=3
    )


def test_unknown_task_names_the_choices() -> None:
    with pytest.raises(ValueError, match=r"task 'sums' .* code, words"):
        bundled.problems("sums", "heldout", 1, seed=0)


def test_mixed_tasks_are_scored_in_order() -> None:
    words = bundled.problems("words", "heldout", 2, seed=1)
    code = bundled.problems("code", "heldout", 2, seed=1)
    asked = [words[0], code[0], words[1], code[1]]
    replies = [words[0].answer, "def nothing(): pass", "I do not know", code[1].answer]
    assert bundled.score(asked, replies) == [True, False, False, True]


def test_a_reply_that_never_ends_is_wrong_and_the_others_are_scored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(judging, "CODE_SECONDS", 3.0)
    code = bundled.problems("code", "heldout", 2, seed=1)
    assert bundled.score(code, ["while True: pass", code[1].answer]) == [False, True]


def test_replies_must_match_the_problems() -> None:
    with pytest.raises(ValueError, match="2 problems but 1 replies"):
        bundled.score(bundled.problems("words", "heldout", 2, seed=1), ["x"])


@given(st.integers(0, 200).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_interval_is_scipys(counts: tuple[int, int]) -> None:
    correct, n = counts
    low, high = wilson_interval(correct, n)
    assert 0 <= low <= high <= 1
    if n:
        known = binomtest(correct, n).proportion_ci(0.95, method="wilson")
        assert (low, high) == pytest.approx((known.low, known.high), abs=1e-6)


def test_wilson_interval_refuses_more_correct_than_there_are() -> None:
    with pytest.raises(ValueError, match="correct 3"):
        wilson_interval(3, 2)


def test_paired_interval_of_equal_replies_is_zero() -> None:
    assert paired_interval([True, False, True], [True, False, True]) == (0.0, 0.0)


def test_paired_interval_by_hand() -> None:
    # Differences -1, 0, 0, 0: mean -1/4, variance 3/16 over n = 4.
    low, high = paired_interval([False, True, True, False], [True, True, True, False])
    half = 1.959964 * (3 / 16 / 4) ** 0.5
    assert (low, high) == pytest.approx((-0.25 - half, -0.25 + half))


def test_paired_interval_without_problems_says_nothing() -> None:
    assert paired_interval([], []) == (-1.0, 1.0)
