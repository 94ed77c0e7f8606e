"""The problems of a sweep: bundled ones, and public tasks from a file."""

import json
from pathlib import Path

import pytest

from tasks.bundled import problems
from tune.check import check
from tune.config import SweepConfig, TasksConfig
from tune.problems import heldout


def gsm8k(folder: Path, count: int) -> str:
    rows = [{"question": f"What is {n} + 1?", "answer": f"#### {n + 1}"} for n in range(count)]
    file = folder / "gsm8k.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def test_bundled_problems_are_the_first_of_their_seed() -> None:
    found = heldout(TasksConfig(), 2).problems
    words, code = (problems(name, "heldout", 2, 7) for name in ("words", "code"))
    assert list(found) == [words[0], code[0], words[1], code[1]]


def test_a_public_task_is_swept_from_a_file_beside_a_bundled_one(tmp_path: Path) -> None:
    tasks = TasksConfig(names=("gsm8k", "words"), data={"gsm8k": gsm8k(tmp_path, 5)})
    found = heldout(tasks, 2)
    assert [problem.task for problem in found.problems] == ["gsm8k", "words"] * 2
    replies = [f"#### {p.gold[0]}" if p.task == "gsm8k" else "no idea" for p in found.problems]
    assert list(found.score(replies).values()) == [True, False, True, False]
    assert heldout(tasks, 1).problems == found.problems[:2], "fewer are a prefix of more"


def test_a_task_with_too_few_problems_is_refused(tmp_path: Path) -> None:
    tasks = TasksConfig(names=("gsm8k",), data={"gsm8k": gsm8k(tmp_path, 3)})
    with pytest.raises(ValueError, match=r"tasks\.recorded 4: task gsm8k has 3 problems only"):
        heldout(tasks, 4)


def test_trials_find_a_file_that_was_named_below_the_drivers_folder(
    sweep_config: SweepConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = Path(gsm8k(tmp_path, 3))
    files = {"gsm8k": file.name}
    asked = {"data": files, "shots": {"gsm8k": 1}, "shots_data": files}
    tasks = TasksConfig.model_validate({"names": ["gsm8k"], "recorded": 2, "live": 1} | asked)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.chdir(tmp_path)
    checked = check(sweep_config.model_copy(update={"tasks": tasks}), tmp_path / "runs")
    (tmp_path / "trial").mkdir()
    monkeypatch.chdir(tmp_path / "trial")  # as Tune does
    assert heldout(checked.config.tasks, 1).problems == checked.problems.problems[:1]
    assert checked.problems.problems[0].prompt.count("Answer:") == 2, "an example, and the question"
