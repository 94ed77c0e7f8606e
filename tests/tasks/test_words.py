"""The word problems keep their promises: pure, split by kinds, right, bounded and scorable."""

import re
from collections import Counter
from dataclasses import replace

import pytest

from tasks.judging import judge_numbers
from tasks.problem import Problem, split_of
from tasks.word_steps import STEPS
from tasks.words import (
    LEAST,
    MOST,
    PROMPT_MOST,
    REPLY_LEAST,
    REPLY_MOST,
    generate,
    num_tokens,
)

TRAIN = [generate("train", 0, index) for index in range(3000)]
HELDOUT = [generate("heldout", 0, index) for index in range(1500)]
PROBLEMS = TRAIN + HELDOUT
EQUATION = re.compile(r"(\d+) ([-+*/]) (\d+) = (\d+)")


def judged(problem: Problem, reply: str) -> tuple[bool, bool]:
    """Whether the reply is right by the strict and by the flexible rule."""
    (verdict,) = judge_numbers([problem], [reply])
    return verdict.correct["strict"], verdict.correct["flexible"]


def _with_gold(gold: str) -> Problem:
    return replace(TRAIN[0], gold=(gold,))


def test_a_problem_is_a_pure_function_of_split_seed_and_index() -> None:
    assert [generate("train", 0, index) for index in reversed(range(50))] == TRAIN[49::-1]
    assert generate("train", 1, 0) != generate("train", 0, 0) != generate("train", 0, 1)
    assert TRAIN[7].id == "words-train-0-7"


def test_an_unknown_split_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'test'"):
        generate("test", 0, 0)  # type: ignore[arg-type]  # the refusal is what is tested


def test_train_and_heldout_share_no_combination_of_kinds() -> None:
    train, heldout = ({p.kinds for p in problems} for problems in (TRAIN, HELDOUT))
    assert not train & heldout
    assert all(split_of(kinds) == "train" for kinds in train)
    assert all(len(kinds) >= 2 for kinds in heldout)


def test_prompts_hardly_ever_repeat() -> None:
    assert len({p.prompt for p in PROBLEMS}) > 0.99 * len(PROBLEMS)


def test_every_kind_of_step_is_seen_in_both_splits() -> None:
    for problems in (TRAIN, HELDOUT):
        assert {kind for p in problems for kind in p.kinds} == STEPS.keys()
    assert len(STEPS) >= 14


def test_every_length_from_one_to_five_steps_is_seen_in_training() -> None:
    assert Counter(len(p.kinds) for p in TRAIN).keys() == {1, 2, 3, 4, 5}


def test_every_reply_scores_true_and_a_changed_number_false() -> None:
    for problem in PROBLEMS:
        assert judged(problem, problem.answer) == (True, True)
        changed = f"{problem.answer}1"
        assert judged(problem, changed) == (False, False)


def test_every_equation_is_right_and_a_reply_has_at_least_one_a_step() -> None:
    for problem in PROBLEMS:
        equations = EQUATION.findall(problem.answer)
        assert len(equations) >= len(problem.kinds)
        for left, operator, right, result in equations:
            a, b, c = int(left), int(right), int(result)
            exact = {"+": a + b == c, "-": a - b == c, "*": a * b == c, "/": a == b * c}
            assert exact[operator], problem.answer


def test_the_equations_lead_from_the_start_to_the_answer() -> None:
    for problem in PROBLEMS:
        lines = problem.answer.splitlines()
        value = re.findall(r"\d+", lines[1])[0]
        for line in lines[2:-2]:
            assert value in re.findall(r"\d+", line)
            value = re.findall(r"\d+", line)[-1]
        assert problem.gold == (value,)


def test_numbers_and_lengths_are_bounded() -> None:
    for problem in PROBLEMS:
        numbers = [int(n) for n in re.findall(r"\d+", problem.prompt + "\n" + problem.answer)]
        assert min(numbers) >= 1
        assert max(numbers) <= MOST
        assert LEAST <= int(problem.gold[0]) <= MOST
        assert num_tokens(problem.prompt) <= PROMPT_MOST
        assert REPLY_LEAST <= num_tokens(problem.answer) <= REPLY_MOST


def test_every_number_follows_a_space_or_a_newline() -> None:
    for problem in PROBLEMS:
        assert not re.search(r"[^\s\d]\d", problem.prompt + "\n" + problem.answer)
        assert not problem.prompt[0].isdigit()


def test_the_words_are_few() -> None:
    text = " ".join(p.prompt + " " + p.answer for p in PROBLEMS)
    assert len(set(re.findall(r"[A-Za-z]+", text))) <= 200


@pytest.mark.parametrize("reply", ["#### 1200", "#### $1,200.", "x\n#### 1,200 apples\n#### 7"])
def test_score_reads_the_first_marked_number_in_every_usual_form(reply: str) -> None:
    assert judged(_with_gold("1200"), reply)[0]


@pytest.mark.parametrize("reply", ["1200", "#### about 1200", "#### 1200.5", "#### -1200", ""])
def test_score_refuses_a_number_that_is_unmarked_or_another(reply: str) -> None:
    assert not judged(_with_gold("1200"), reply)[0]


def test_flexible_reads_the_last_number_marked_or_not() -> None:
    assert judged(_with_gold("1200"), "2 * 600 is $1,200.")[1]
    assert not judged(_with_gold("1200"), "1200, not 7")[1]
    assert not judged(_with_gold("1200"), "no number")[1]
