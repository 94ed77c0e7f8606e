"""The code tasks: determinism, the split, reference replies, lengths and words."""

import re

import pytest

from tasks.bundled import score
from tasks.code import extract, generate
from tasks.code_parts import LISTS, TEXTS
from tasks.problem import Problem

_TOKEN = re.compile(r"\n *| ?[A-Za-z]+| ?\d| ?[^\w\s]+|_|\s")


@pytest.fixture(scope="module")
def train() -> list[Problem]:
    return [generate("train", 0, index) for index in range(3_000)]


@pytest.fixture(scope="module")
def heldout() -> list[Problem]:
    return [generate("heldout", 0, index) for index in range(1_500)]


def _body(problem: Problem) -> list[int]:
    """The numbers of the answer's lines that are steps."""
    lines = problem.answer.splitlines()
    start = lines.index('    """') + 1
    return [i for i in range(start, len(lines) - 1) if lines[i].startswith("    ")]


def _passes_in_process(problem: Problem, code: str) -> bool:
    try:
        exec("\n".join([code, *problem.gold]), {})
    except Exception:
        return False
    return True


def test_generation_is_a_pure_function_of_its_arguments() -> None:
    for split in ("train", "heldout"):
        assert generate(split, 3, 7) == generate(split, 3, 7)
    assert generate("train", 3, 7).prompt != generate("train", 3, 8).prompt
    assert generate("train", 3, 7).prompt != generate("train", 4, 7).prompt


def test_heldout_combinations_are_never_trained_on(
    train: list[Problem], heldout: list[Problem]
) -> None:
    trained = {problem.kinds for problem in train}
    held = {problem.kinds for problem in heldout}
    assert not trained & held
    assert all(len(kinds) >= 2 for kinds in held)
    assert {kind for kinds in held for kind in kinds} <= {k for kinds in trained for k in kinds}


def test_every_kind_is_generated(train: list[Problem]) -> None:
    kinds = [p.kind for f in (LISTS, TEXTS) for p in (*f.steps, *f.reductions)]
    assert len(set(kinds)) == len(kinds) >= 16
    assert {kind for problem in train for kind in problem.kinds} == set(kinds)


def test_reference_code_computes_the_expected_values(
    train: list[Problem], heldout: list[Problem]
) -> None:
    for problem in train + heldout:
        assert len(problem.gold) == 3
        assert _passes_in_process(problem, extract(problem.answer)), problem


def test_leaving_out_any_step_fails(train: list[Problem], heldout: list[Problem]) -> None:
    for problem in train[:500] + heldout[:500]:
        lines = problem.answer.splitlines()
        for i in _body(problem):
            code = extract("\n".join(lines[:i] + lines[i + 1 :]))
            assert not _passes_in_process(problem, code), (problem, code)


def test_reference_replies_score_and_mutated_ones_do_not(
    train: list[Problem], heldout: list[Problem]
) -> None:
    problems = train[:75] + heldout[:75]
    assert all(score(problems, [problem.answer for problem in problems]))
    mutated = []
    for problem in problems[:30]:
        lines = problem.answer.splitlines()
        del lines[_body(problem)[0]]
        mutated.append("\n".join(lines))
    assert not any(score(problems[:30], mutated))


def test_prompts_and_replies_keep_their_lengths(
    train: list[Problem], heldout: list[Problem]
) -> None:
    for problem in train + heldout:
        assert 40 <= len(_TOKEN.findall(problem.answer)) <= 160, problem.answer
        assert len(_TOKEN.findall(problem.prompt)) <= 120, problem.prompt


def test_the_prompt_fixes_the_name_and_the_argument_and_shows_the_first_assert(
    train: list[Problem],
) -> None:
    for problem in train:
        [(name, argument)] = re.findall(r"def (\w+)\((\w+)\):", problem.answer)
        description, hint = problem.prompt.split("\nassert ")
        assert f"function {name} " in description
        assert re.search(rf"a (list|text) (called )?{argument}\b", description)
        assert f"assert {hint}" == problem.gold[0]


def test_words_outside_the_tests_come_from_a_small_lexicon(
    train: list[Problem], heldout: list[Problem]
) -> None:
    texts = (p.prompt.split("\nassert ")[0] + p.answer for p in train + heldout)
    assert len({word for text in texts for word in re.findall("[A-Za-z]+", text)}) <= 250


def test_extract_takes_the_first_block_or_everything() -> None:
    assert extract("Sure:\n```python\nx = 1\n```\n```\ny\n```") == "x = 1\n"
    assert extract("```\nx = 1\n```") == "x = 1\n"
    assert extract("```python\nx = 1\n") == "x = 1\n"
    assert extract("x = 1") == "x = 1"


@pytest.mark.parametrize("reply", ["", "```", "\0", "\ud800", '"""', "raise SystemExit", "if 1:\\"])
def test_bad_replies_score_false_without_raising(train: list[Problem], reply: str) -> None:
    assert score([train[0]], [reply]) == [False]
