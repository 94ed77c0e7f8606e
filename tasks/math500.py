"""MATH-500: competition mathematics, judged by math-verify (Hendrycks et al. 2021, Lightman 2023).

Rows come as on the hub (``problem``, ``solution``, ``answer``) or with a finished ``prompt``.
"""

from collections.abc import Iterator, Sequence

from tasks.benchmark import Benchmark
from tasks.bounded import run_bounded
from tasks.cores import usable_cores
from tasks.problem import Problem, Verdict
from tasks.sources import Row, Source
from tasks.task import Task

MATH_SECONDS = 10.0
"""Wall-clock limit of one comparison, after which it counts as wrong."""
PAIRS_A_PROCESS = 50
"""Fewer are done sooner than another process has imported what it needs."""

_INSTRUCTION = "Please reason step by step, and put your final answer within \\boxed{}."


def pose(place: int, row: Row, examples: Sequence[Row]) -> Problem:
    """The problem with the usual instruction, behind examples if there are any."""
    question = row.get("prompt") or f"{row.get('problem')}\n{_INSTRUCTION}"
    if not row.get("prompt") and not row.get("problem"):
        raise ValueError(f"math500 row {place + 1} has neither problem nor prompt")
    shown = [f"Problem:\n{e['problem']}\n\nSolution:\n{e['solution']}\n\n" for e in examples]
    prompt = "".join(shown) + (f"Problem:\n{question}\n\nSolution:" if shown else question)
    id_ = row.get("unique_id") or f"math500-{place}"
    answer = row.get("solution") or f"\\boxed{{{row['answer']}}}"
    return Problem(id_, "math500", prompt, answer, (row["answer"],))


def score(problems: Sequence[Problem], replies: Sequence[str]) -> Iterator[Verdict]:
    """By math-verify, the gold answer first; one that takes too long is wrong and says so."""
    from tasks.latex import equal  # here: it imports sympy, which takes seconds

    pairs = [(p.gold[0], reply) for p, reply in zip(problems, replies, strict=True)]
    workers = min(usable_cores(), 1 + len(pairs) // PAIRS_A_PROCESS)
    for outcome in run_bounded(equal, pairs, MATH_SECONDS, workers):
        right, read = outcome.value or (False, None)
        yield Verdict({"math_verify": right}, read, outcome.reason)


MATH500 = Benchmark(
    name="math500",
    source=Source("HuggingFaceH4/MATH-500", None, "test"),
    fields=("answer",),
    example_fields=("problem", "solution"),
    pose=pose,
)
TASK = Task(MATH500.select, score, ("math_verify",), 1024)
