"""The held-out problems of a sweep, as prompt rows and as what scores the replies."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from tasks import registry
from tasks.problem import Problem
from tasks.task import Selection
from tune.config import TasksConfig


@dataclass(frozen=True)
class ProblemSet:
    """Problems of several tasks; ``live`` of each task come first in its list."""

    problems: tuple[Problem, ...]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Prompt rows; a row's seed follows from its id, so it never depends on the others."""
        return [{"id": problem.id, "prompt": problem.prompt} for problem in self.problems]

    def first(self, count: int) -> "ProblemSet":
        """The first ``count`` of them."""
        return ProblemSet(self.problems[:count])

    @property
    def digest(self) -> str:
        """A short digest of prompts and gold answers."""
        told = [[p.id, p.prompt, *p.gold] for p in self.problems]
        return blake2b(json.dumps(told).encode(), digest_size=8).hexdigest()

    def score(self, replies: Sequence[str]) -> dict[str, bool]:
        """Problem id to whether its reply is right; replies in the order of the problems."""
        found = registry.score(self.problems, replies)
        return {problem.id: ok for problem, ok in zip(self.problems, found, strict=True)}


def heldout(tasks: TasksConfig, count: int) -> ProblemSet:
    """``count`` held-out problems of every task, the tasks taking turns.

    Raises ``ValueError`` for a task that has fewer.
    """
    lists = [_problems(name, tasks, count) for name in tasks.names]
    return ProblemSet(tuple(problem for turn in zip(*lists, strict=True) for problem in turn))


def _problems(name: str, tasks: TasksConfig, count: int) -> tuple[Problem, ...]:
    selection = Selection(
        limit=count,
        shuffle_seed=tasks.seed,
        data=tasks.data.get(name),
        shots=tasks.shots.get(name, 0),
        shots_data=tasks.shots_data.get(name),
    )
    found = registry.select(name, selection).problems
    if len(found) < count:
        raise ValueError(f"tasks.recorded {count}: task {name} has {len(found)} problems only")
    return found
