"""What an endpoint is asked: the bundled tasks' held-out problems, or a file of prompts."""

from itertools import chain, cycle, islice
from typing import Any

from benchmarks.load.client import Question
from benchmarks.load.config import LoadConfig
from decoders.noise import row_seed
from decoders.prompts import PromptRow
from tasks.bundled import problems
from tasks.files import read_prompts


def read_questions(config: LoadConfig) -> list[list[Question]]:
    """For every level ``requests`` questions behind ``warmup`` ones, other ones than before: an
    endpoint may keep the prompts that it has seen. A file that is shorter begins anew.

    Each has a seed of its own, so that no two answers are the same draw at T>0.
    """
    each = config.warmup + config.requests
    count = each * len(config.levels)
    asked = _from_file(config) if config.prompts else _from_tasks(config, count)
    shared = {"max_tokens": config.max_tokens, "temperature": config.temperature}
    questions = [
        Question(f"{index}:{id}", shared | {"seed": _seed(config.seed, index)} | own)
        for index, (id, own) in enumerate(islice(cycle(asked), count))
    ]
    return [questions[start : start + each] for start in range(0, count, each)]


def _from_tasks(config: LoadConfig, count: int) -> list[tuple[str, dict[str, Any]]]:
    """Problems of the tasks by turns."""
    each = -(-count // len(config.tasks))
    columns = [problems(task, "heldout", each, config.seed) for task in config.tasks]
    rows = chain.from_iterable(zip(*columns, strict=True))
    return [(problem.id, _chat(problem.prompt)) for problem in rows]


def _from_file(config: LoadConfig) -> list[tuple[str, dict[str, Any]]]:
    assert config.prompts is not None
    rows = read_prompts(config.prompts).rows
    if not rows:
        raise ValueError(f"prompts {config.prompts}: no rows")
    return [(row.id, _fields(row)) for row in rows]


def _fields(row: PromptRow) -> dict[str, Any]:
    """A row's prompt; its own seed, limit and temperature win over the run's."""
    fields = {"prompt": list(row.prompt_ids or ())} if row.prompt is None else _chat(row.prompt)
    own = {"seed": row.seed, "max_tokens": row.max_new_tokens, "temperature": row.temperature}
    return fields | {name: value for name, value in own.items() if value is not None}


def _chat(prompt: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": prompt}]}


def _seed(seed: int, index: int) -> int:
    """Within 53 bits, which every server's JSON can read."""
    return row_seed(seed, f"load {index}") >> 11
