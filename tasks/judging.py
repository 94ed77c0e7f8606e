"""Verdicts that several tasks share: on numbers by GSM8K's rules, and on code in the sandbox."""

from collections.abc import Iterator, Sequence

from tasks.problem import Problem, Verdict
from tasks.reading import last_number, strict_number
from tasks.sandbox import run_many

CODE_SECONDS = 10.0
"""Of CPU time for one reply's tests; the slowest reference solution of MBPP takes 5."""


def judge_numbers(problems: Sequence[Problem], replies: Sequence[str]) -> Iterator[Verdict]:
    """By GSM8K's two rules; the strict one counts. ``read`` is its number, else the other's."""
    for problem, reply in zip(problems, replies, strict=True):
        gold, strict, flexible = problem.gold[0], strict_number(reply), last_number(reply)
        correct = {"strict": strict == gold, "flexible": flexible == gold}
        yield Verdict(correct, flexible if strict is None else strict)


def judge_programs(codes: Sequence[str], programs: Sequence[str]) -> Iterator[Verdict]:
    """Whether each program, which is a reply's code and its tests, reaches its end."""
    results = run_many(programs, CODE_SECONDS)
    for code, result in zip(codes, results, strict=True):
        yield Verdict({"pass@1": result.ok}, code, None if result.ok else result.reason)
