"""MBPP: small Python functions, whole and sanitized (Austin et al. 2021).

The files hold all splits: ids 2 to 10 are shown as examples (1 is not, as in the paper), ids 11 to
510 are the test split. The sanitized subset has other words and tests: it is a task of its own.
"""

from collections.abc import Iterator, Sequence
from functools import partial

from tasks.benchmark import Benchmark
from tasks.code import extract
from tasks.judging import judge_programs
from tasks.problem import Problem, Verdict
from tasks.sources import Row, Source
from tasks.task import Task

_HUB = "google-research-datasets/mbpp"
_INSTRUCTION = "Reply with one Python code block."


def question(row: Row) -> str:
    """What is asked of a row: its text, and its first test, which shows name and arguments."""
    text = row.get("text") or row["prompt"]
    return f"{text.strip()} Your code should pass this test:\n{row['test_list'][0].strip()}"


def pose(task: str, place: int, row: Row, examples: Sequence[Row]) -> Problem:
    """The question with an instruction, behind solved ones if there are examples; gold are the
    lines that make the tests ready, then every test."""
    shown = [f"{question(e)}\n```python\n{_code(e)}\n```" for e in examples]
    prompt = "\n\n".join([*shown, f"{question(row)}\n{_INSTRUCTION}"])
    setup = "\n".join([row.get("test_setup_code") or "", *(row.get("test_imports") or ())])
    answer = f"```python\n{_code(row)}\n```"
    return Problem(f"{task}-{row['task_id']}", task, prompt, answer, (setup, *row["test_list"]))


def _code(row: Row) -> str:
    return row["code"].replace("\r\n", "\n").strip()


def score(problems: Sequence[Problem], replies: Sequence[str]) -> Iterator[Verdict]:
    """Whether the first code block of a reply passes every assert."""
    codes = [extract(reply) for reply in replies]
    programs = [
        # The lines of two problems need what the reply defines.
        "\n".join([code, *problem.gold])
        for code, problem in zip(codes, problems, strict=True)
    ]
    return judge_programs(codes, programs)


def _benchmark(task: str, config: str) -> Benchmark:
    return Benchmark(
        name=task,
        source=Source(_HUB, config, "test"),
        examples=Source(_HUB, config, "prompt"),
        fields=("task_id", "code", "test_list"),
        pose=partial(pose, task),
        asks=lambda row: 11 <= row["task_id"] <= 510,
        shows=lambda example, row: 2 <= example["task_id"] <= 10,
        one_file=True,
    )


MBPP = _benchmark("mbpp", "full")
SANITIZED = _benchmark("mbpp-sanitized", "sanitized")
TASK = Task(MBPP.select, score, ("pass@1",), 512)
SANITIZED_TASK = Task(SANITIZED.select, score, ("pass@1",), 512)
