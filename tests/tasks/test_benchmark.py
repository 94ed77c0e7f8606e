"""Public tasks: their original formats, shuffles, examples, and what is refused.

The rows are made up here, in the form of the originals.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tasks.registry import TASKS, find_task, select
from tasks.task import Selection

SUMS = [
    {"question": f"{n} + {n}?", "answer": f"<<{n}+{n}={2 * n}>>\n#### {2 * n}"} for n in range(9)
]
CHOICES = {"question": "Which?", "choices": ["w", "x", "y", "z"]}
TREES = {
    "task_id": "HumanEval/0",
    "prompt": 'def trees(n):\n    """Twice n."""\n',
    "entry_point": "trees",
    "canonical_solution": "    return 2 * n\n",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n",
}


def small(n: int, text: str = "text") -> dict[str, Any]:
    """A row of MBPP, whose sanitized form calls its text prompt."""
    return {
        "task_id": n,
        text: f"Write a function f{n} that adds {n}.",
        "code": f"def f{n}(x):\r\n  return x + {n}",
        "test_list": [f"assert f{n}(1) == {n + 1}", f"assert f{n}(0) == {n}"],
    }


ROWS: dict[str, list[dict[str, Any]]] = {
    "gsm8k": SUMS,
    "math500": [
        {"problem": "Half?", "solution": "It is $\\boxed{\\frac12}$.", "answer": "\\frac12"},
        {"prompt": "A third? Box it.", "answer": "\\frac13"},
    ],
    "mbpp": [
        small(n) | {"test_setup_code": "", "challenge_test_list": []} for n in (2, 3, 11, 510)
    ],
    "mbpp-sanitized": [
        small(n, "prompt") | {"source_file": "x", "test_imports": ["import math"]} for n in (2, 11)
    ],
    "humaneval": [TREES],
    "mmlu": [
        CHOICES | {"subject": "old_maths", "answer": "C"},
        CHOICES | {"subject": "new_maths", "answer": "A"},
    ],
    "triviaqa": [
        {
            "question": "Who?",
            "question_id": "tc_1",
            "answer": {
                "value": "The Moon",
                "aliases": ["Moon, The"],
                "normalized_aliases": ["luna"],
            },
        }
    ],
}
PUBLIC = sorted(ROWS)


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return str(path)


def test_every_public_task_has_rows_here() -> None:
    assert set(TASKS) == {*PUBLIC, "words", "code"}


@pytest.mark.parametrize("name", PUBLIC)
def test_reference_answers_are_right_and_empty_ones_wrong_by_every_metric(
    name: str, tmp_path: Path
) -> None:
    task = find_task(name)
    asked = task.select(Selection(data=write(tmp_path / "rows.jsonl", ROWS[name]))).problems
    replies = [problem.answer for problem in asked] + [""] * len(asked)
    verdicts = list(task.score([*asked, *asked], replies))
    right, wrong = verdicts[: len(asked)], verdicts[len(asked) :]
    assert all(tuple(verdict.correct) == task.metrics for verdict in verdicts)
    assert all(all(verdict.correct.values()) for verdict in right)
    assert not any(any(verdict.correct.values()) for verdict in wrong)


FIRST_TEST = "Your code should pass this test:\nassert f11(1) == 12\n"
ASKED = {
    "gsm8k": "0 + 0?",
    "math500": "A third? Box it.",
    "mbpp": f"Write a function f11 that adds 11. {FIRST_TEST}",
    "mbpp-sanitized": f"Write a function f11 that adds 11. {FIRST_TEST}",
    "humaneval": f"```python\n{TREES['prompt']}```",
    "mmlu": "Which?\n(A) w\n(B) x\n(C) y\n(D) z\n",
    "triviaqa": "Who?",
}


@pytest.mark.parametrize("name", PUBLIC)
def test_a_prompt_holds_the_question_and_not_its_answer(name: str, tmp_path: Path) -> None:
    asked = select(name, Selection(data=write(tmp_path / "rows.jsonl", ROWS[name]))).problems
    (problem,) = [problem for problem in asked if ASKED[name] in problem.prompt][:1]
    assert problem.answer not in problem.prompt


@pytest.mark.parametrize("file", ["rows.jsonl", "rows.json", "rows.jsonl.gz"])
def test_files_are_read_compressed_or_not(tmp_path: Path, file: str) -> None:
    asked = select("gsm8k", Selection(data=write(tmp_path / file, SUMS)))
    assert len(asked.problems) == len(SUMS)
    assert (
        asked.source["digest"]
        == select("gsm8k", Selection(data=write(tmp_path / "again.jsonl", SUMS))).source["digest"]
    )


def test_a_json_array_is_read_as_the_sanitized_file_is_published(tmp_path: Path) -> None:
    path = tmp_path / "sanitized-mbpp.json"
    path.write_text(json.dumps(ROWS["mbpp-sanitized"]))
    (problem,) = select("mbpp-sanitized", Selection(data=str(path))).problems
    assert (problem.id, problem.task) == ("mbpp-sanitized-11", "mbpp-sanitized")
    assert problem.gold[0].strip() == "import math"


def test_a_folder_is_read_as_a_copy_of_the_hubs(tmp_path: Path) -> None:
    folder = tmp_path / "gsm8k"
    (folder / "main").mkdir(parents=True)
    write(folder / "main" / "test.jsonl", SUMS)
    write(folder / "main" / "train.jsonl", SUMS[:1])
    splits = [{"split": split, "path": f"main/{split}.jsonl"} for split in ("test", "train")]
    config = {"config_name": "main", "data_files": splits}
    (folder / "README.md").write_text(f"---\nconfigs: {json.dumps([config])}\n---\n")
    assert len(select("gsm8k", Selection(data=str(folder))).problems) == len(SUMS)


def test_fewer_problems_are_a_prefix_of_more_and_a_seed_decides_the_order(tmp_path: Path) -> None:
    data = write(tmp_path / "rows.jsonl", SUMS)
    every = select("gsm8k", Selection(data=data)).problems
    assert select("gsm8k", Selection(data=data, limit=4)).problems == every[:4]
    other = select("gsm8k", Selection(data=data, shuffle_seed=8)).problems
    assert {p.id for p in other} == {p.id for p in every}
    assert [p.id for p in other] != [p.id for p in every] != sorted(p.id for p in every)


def test_a_sample_of_rows_sorted_by_subject_has_many_subjects(tmp_path: Path) -> None:
    rows = [
        CHOICES | {"question": f"Q{n}?", "subject": f"subject_{n // 20}", "answer": n % 4}
        for n in range(200)
    ]
    sample = select("mmlu", Selection(data=write(tmp_path / "rows.jsonl", rows), limit=20))
    assert len({problem.kinds for problem in sample.problems}) > 5
    assert {problem.gold[0] for problem in sample.problems} == set("ABCD")  # numbers are letters


def test_examples_stand_before_the_question_with_their_answers(tmp_path: Path) -> None:
    data = write(tmp_path / "rows.jsonl", SUMS[5:6])
    examples = write(tmp_path / "train.jsonl", SUMS[:3])
    asked = select("gsm8k", Selection(data=data, shots=2, shots_data=examples))
    assert asked.problems[0].prompt == (
        f"Question: 0 + 0?\nAnswer: {SUMS[0]['answer']}\n\n"
        f"Question: 1 + 1?\nAnswer: {SUMS[1]['answer']}\n\nQuestion: 5 + 5?\nAnswer:"
    )


def test_examples_of_mmlu_are_of_the_same_subject(tmp_path: Path) -> None:
    data = write(tmp_path / "test.jsonl", ROWS["mmlu"])
    dev = [row | {"question": f"Dev {row['subject']}?"} for row in ROWS["mmlu"]]
    examples = write(tmp_path / "dev.jsonl", dev)
    for problem in select("mmlu", Selection(data=data, shots=1, shots_data=examples)).problems:
        assert f"Dev {problem.kinds[0]}?" in problem.prompt
        assert problem.prompt.count("Dev ") == 1
        assert problem.prompt.count("The answer is") == 1


def test_examples_of_math500_are_problems_with_solutions_and_need_no_answer(tmp_path: Path) -> None:
    data = write(tmp_path / "test.jsonl", ROWS["math500"])
    examples = write(tmp_path / "train.jsonl", [{"problem": "One?", "solution": "\\boxed{1}"}])
    for problem in select("math500", Selection(data=data, shots=1, shots_data=examples)).problems:
        assert problem.prompt.startswith("Problem:\nOne?\n\nSolution:\n\\boxed{1}\n\nProblem:\n")
        assert problem.prompt.endswith("\n\nSolution:")


def test_examples_of_mbpp_come_from_its_own_file_and_are_never_asked(tmp_path: Path) -> None:
    data = write(tmp_path / "mbpp.jsonl", ROWS["mbpp"])
    asked = select("mbpp", Selection(data=data, shots=2)).problems
    assert {problem.id for problem in asked} == {"mbpp-11", "mbpp-510"}
    for problem in asked:
        assert problem.prompt.count("def f2(x):\n  return") == 1
        assert problem.prompt.index("f3") < problem.prompt.index(problem.gold[1])
        assert problem.gold[2] not in problem.prompt  # one test is shown, all are run


def test_an_example_is_never_the_question_itself(tmp_path: Path) -> None:
    data = write(tmp_path / "rows.jsonl", SUMS)
    for problem in select("gsm8k", Selection(data=data, shots=2, shots_data=data)).problems:
        lines = [line for line in problem.prompt.splitlines() if line.startswith("Question")]
        assert len(set(lines)) == 3


@pytest.mark.parametrize(
    ("task", "selection", "said"),
    [
        ("sums", Selection(), "task 'sums' is not known; choose from code, gsm8k, humaneval"),
        (
            "gsm8k",
            Selection(data="nowhere.jsonl"),
            "'nowhere.jsonl' is neither a folder nor",
        ),
        ("gsm8k", Selection(data=__file__), "valid: a copy of the hub's folder, or a file .json,"),
        ("gsm8k", Selection(data="DATA", shots=1), "with --shots-data FILE"),
        ("gsm8k", Selection(data="DATA", shots_data="x"), "needs shots of at least 1"),
        ("gsm8k", Selection(data="DATA", shots=99, shots_data="DATA"), "there are 8 examples"),
        (
            "mmlu",
            Selection(data="DATA"),
            r"no field 'subject' \(question, answer\); task mmlu",
        ),
        ("humaneval", Selection(shots=1, data="TREES"), "humaneval has no examples; valid: 0"),
        ("math500", Selection(shots=1), "with --shots-data FILE"),
        ("words", Selection(shots=1), "task words makes its problems"),
        ("code", Selection(data="x"), "data 'x': task code makes its problems"),
    ],
)
def test_what_cannot_be_selected_is_refused_with_a_reason(
    task: str, selection: Selection, said: str, tmp_path: Path
) -> None:
    sums, trees = write(tmp_path / "a.jsonl", SUMS), write(tmp_path / "b.jsonl", [TREES])
    named = {"DATA": sums, "TREES": trees}
    values = selection.model_dump(exclude_defaults=True)
    given = Selection.model_validate({name: named.get(v, v) for name, v in values.items()})
    with pytest.raises(ValueError, match=said):
        select(task, given)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{\n", "cannot be read"),
        ("\n", "cannot be read"),
        ("", "holds no rows"),
        ('{"question": "?", "answer": "7"}\n', "row 1"),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match=said):
        select("gsm8k", Selection(data=str(path)))


def test_a_row_that_stands_twice_is_refused(tmp_path: Path) -> None:
    data = write(tmp_path / "rows.jsonl", [TREES, TREES])
    with pytest.raises(ValueError, match="holds a problem of humaneval twice"):
        select("humaneval", Selection(data=data))
