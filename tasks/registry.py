"""All tasks by name, bundled and public: the one list that commands and sweeps choose from."""

from collections.abc import Sequence
from functools import partial

from tasks import bundled, gsm8k, humaneval, math500, mbpp, mmlu, triviaqa
from tasks.problem import Problem
from tasks.task import Asked, Selection, Task, find, score_mixed

TASKS: dict[str, Task] = {
    **bundled.TASKS,
    "gsm8k": gsm8k.TASK,
    "math500": math500.TASK,
    "mbpp": mbpp.TASK,
    "mbpp-sanitized": mbpp.SANITIZED_TASK,
    "humaneval": humaneval.TASK,
    "mmlu": mmlu.TASK,
    "triviaqa": triviaqa.TASK,
}

find_task = partial(find, TASKS)
"""The task of a name; ``ValueError`` that names the choices for another one."""


def select(task: str, selection: Selection) -> Asked:
    """The problems of a task; fewer of them are a prefix of more."""
    return find_task(task).select(selection)


def score(asked: Sequence[Problem], replies: Sequence[str]) -> list[bool]:
    """Whether each reply solves its problem by its task's own metric; tasks may be mixed."""
    return score_mixed(TASKS, asked, replies)
