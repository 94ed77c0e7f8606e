"""The real data sets, where they are at hand: they load whole and agree with themselves.

In ``../shared/data`` beside the repository, or where MASKAHEAD_DATA says.
"""

import os
from pathlib import Path

import pytest

from tasks.problem import Problem
from tasks.reading import strict_number
from tasks.registry import find_task, select
from tasks.task import Selection

BESIDE = Path(__file__).parents[2].parent / "shared" / "data"
DATA = Path(os.environ.get("MASKAHEAD_DATA", BESIDE))
FILES = {
    "gsm8k": ("gsm8k_test.jsonl", 1319),
    "math500": ("math500.jsonl", 500),
    "mbpp": ("mbpp.jsonl", 500),
    "humaneval": ("HumanEval.jsonl.gz", 164),
    "mmlu": ("mmlu_test.jsonl", 342),
}
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"no data sets in {DATA}")


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


def asked(task: str) -> tuple[Problem, ...]:
    return select(task, Selection(data=str(DATA / FILES[task][0]))).problems


@pytest.mark.parametrize("task", FILES)
def test_a_data_set_loads_whole_and_its_own_answers_are_right(task: str) -> None:
    problems = asked(task)
    assert len(problems) == FILES[task][1]
    some = problems if task in ("gsm8k", "mmlu") else problems[:6]
    verdicts = list(find_task(task).score(some, [problem.answer for problem in some]))
    assert all(verdict.ok for verdict in verdicts)


def test_a_sample_of_mmlu_is_of_many_subjects() -> None:
    assert len({problem.kinds for problem in asked("mmlu")[:57]}) > 25


def test_five_shots_of_mmlu_are_of_the_questions_subject() -> None:
    data, dev = str(DATA / "mmlu_test.jsonl"), str(DATA / "mmlu_dev.jsonl")
    for problem in select("mmlu", Selection(data=data, shots=5, shots_data=dev)).problems:
        assert problem.prompt.startswith(
            f"Multiple choice questions about {problem.kinds[0].replace('_', ' ')}:"
        )
        assert problem.prompt.count("\nThe answer is (") == 5


def test_a_shot_of_gsm8k_ends_as_its_answers_do() -> None:
    data, train = str(DATA / "gsm8k_test.jsonl"), str(DATA / "gsm8k_train.jsonl")
    (problem,) = select("gsm8k", Selection(data=data, limit=1, shots=5, shots_data=train)).problems
    assert problem.prompt.count("\n#### ") == 5
    assert strict_number(problem.prompt) == "72"
    assert problem.prompt.endswith("\nAnswer:")
