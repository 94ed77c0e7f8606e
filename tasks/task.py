"""What a task is: problems in, verdicts out. Bundled and public tasks alike."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from tasks.problem import Problem, Verdict


class Selection(BaseModel):
    """Which problems of a task are asked, and how."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    limit: int | None = Field(default=None, ge=1)
    """At most so many problems; fewer are a prefix of more."""
    shuffle_seed: int = 7
    """Of the order of the problems, and so of a sample (bundled tasks: of the problems
    themselves). A sweep's problems are those of 7."""
    shots: int = Field(default=0, ge=0)
    """Solved examples that stand before the question."""
    data: str | None = None
    """A file or folder to read the rows from, instead of the hub."""
    shots_data: str | None = None
    """A file or folder to read the solved examples from."""


@dataclass(frozen=True)
class Asked:
    """Selected problems, and what tells them from others: where they are from, with a digest."""

    problems: tuple[Problem, ...]
    source: Mapping[str, Any]


@dataclass(frozen=True)
class Task:
    """``select`` gives the problems of a selection, ``score`` judges replies in their order.

    ``metrics`` are what every verdict speaks of, the task's own first; ``max_new_tokens`` is the
    limit of a reply where no other is asked for.
    """

    select: Callable[[Selection], Asked]
    score: Callable[[Sequence[Problem], Sequence[str]], Iterator[Verdict]]
    metrics: tuple[str, ...]
    max_new_tokens: int


def find(tasks: Mapping[str, Task], name: str) -> Task:
    """The task of that name; ``ValueError`` that names the choices for another one."""
    if name not in tasks:
        raise ValueError(f"task {name!r} is not known; choose from {', '.join(sorted(tasks))}")
    return tasks[name]


def score_mixed(
    tasks: Mapping[str, Task], asked: Sequence[Problem], replies: Sequence[str]
) -> list[bool]:
    """Whether each reply solves its problem by its task's own metric; tasks may be mixed."""
    if len(asked) != len(replies):
        raise ValueError(f"{len(asked)} problems but {len(replies)} replies")
    solved: dict[int, bool] = {}
    for name in {problem.task for problem in asked}:
        places = [i for i, problem in enumerate(asked) if problem.task == name]
        verdicts = find(tasks, name).score([asked[i] for i in places], [replies[i] for i in places])
        solved.update((i, verdict.ok) for i, verdict in zip(places, verdicts, strict=True))
    return [solved[i] for i in range(len(asked))]
