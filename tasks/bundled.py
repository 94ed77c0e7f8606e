"""The bundled tasks by name: their problems, and the scoring of many replies at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tasks import code, words
from tasks.problem import Problem, Split
from tasks.sandbox import run_many

CODE_SECONDS = 5.0
"""Wall-clock limit of one reply's asserts."""


@dataclass(frozen=True)
class Task:
    """``generate`` makes the problem of a split, seed and index; ``score`` judges replies."""

    generate: Callable[[Split, int, int], Problem]
    score: Callable[[Sequence[Problem], Sequence[str]], list[bool]]


def _score_words(problems: Sequence[Problem], replies: Sequence[str]) -> list[bool]:
    pairs = zip(problems, replies, strict=True)
    return [words.score(problem, reply) for problem, reply in pairs]


def _score_code(problems: Sequence[Problem], replies: Sequence[str]) -> list[bool]:
    pairs = zip(problems, replies, strict=True)
    sources = ["\n".join([code.extract(reply), *problem.gold]) for problem, reply in pairs]
    return [result.ok for result in run_many(sources, CODE_SECONDS)]


TASKS: dict[str, Task] = {
    "words": Task(words.generate, _score_words),
    "code": Task(code.generate, _score_code),
}


def find_task(name: str) -> Task:
    """The task of that name; ``ValueError`` that names the choices for another one."""
    if name not in TASKS:
        raise ValueError(f"task {name!r} is not known; choose from {', '.join(sorted(TASKS))}")
    return TASKS[name]


def problems(task: str, split: Split, count: int, seed: int) -> list[Problem]:
    """The first ``count`` problems of a split: fewer of them are a prefix of more."""
    generate = find_task(task).generate
    return [generate(split, seed, index) for index in range(count)]


def score(asked: Sequence[Problem], replies: Sequence[str]) -> list[bool]:
    """Whether each reply solves its problem; tasks may be mixed, the order is kept."""
    if len(asked) != len(replies):
        raise ValueError(f"{len(asked)} problems but {len(replies)} replies")
    solved: dict[int, bool] = {}
    for name in {problem.task for problem in asked}:
        places = [i for i, problem in enumerate(asked) if problem.task == name]
        found = find_task(name).score([asked[i] for i in places], [replies[i] for i in places])
        solved.update(zip(places, found, strict=True))
    return [solved[i] for i in range(len(asked))]
