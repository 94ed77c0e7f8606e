"""The bundled tasks: seeded problems without end, made here, and the scoring of replies."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from tasks import code, words
from tasks.judging import judge_numbers, judge_programs
from tasks.problem import Problem, Split, Verdict
from tasks.task import Asked, Selection, Task, find, score_mixed

NUM_PROBLEMS = 100
"""Of an evaluation that names no limit: there is no end to them."""

Generate = Callable[[Split, int, int], Problem]
"""The problem of a split, seed and index."""

GENERATE: dict[str, Generate] = {"words": words.generate, "code": code.generate}


def problems(task: str, split: Split, count: int, seed: int) -> list[Problem]:
    """The first ``count`` problems of a split: fewer of them are a prefix of more."""
    find_task(task)
    return [GENERATE[task](split, seed, index) for index in range(count)]


def score(asked: Sequence[Problem], replies: Sequence[str]) -> list[bool]:
    """Whether each reply solves its problem; tasks may be mixed, the order is kept."""
    return score_mixed(TASKS, asked, replies)


def _score_code(problems: Sequence[Problem], replies: Sequence[str]) -> Iterator[Verdict]:
    codes = [code.extract(reply) for reply in replies]
    pairs = zip(problems, codes, strict=True)
    return judge_programs(codes, ["\n".join([source, *p.gold]) for p, source in pairs])


def _select(task: str, selection: Selection) -> Asked:
    """Held-out problems, those of a sweep."""
    for name in ("data", "shots_data", "shots"):
        if value := getattr(selection, name):
            raise ValueError(f"{name} {value!r}: task {task} makes its problems, without examples")
    count = selection.limit or NUM_PROBLEMS
    found = problems(task, "heldout", count, selection.shuffle_seed)
    return Asked(tuple(found), {"made": f"{task}, held out"})


TASKS: dict[str, Task] = {
    "words": Task(partial(_select, "words"), judge_numbers, ("strict", "flexible"), 256),
    "code": Task(partial(_select, "code"), _score_code, ("pass@1",), 256),
}

find_task = partial(find, TASKS)
"""The bundled task of a name; ``ValueError`` that names the choices for another one."""
