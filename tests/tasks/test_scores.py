"""Scorers against replies judged by hand: near misses, other forms, and hostile code."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from tasks import humaneval, judging, math500, mbpp, mmlu, triviaqa
from tasks.problem import Problem, Verdict
from tasks.registry import score


def problem(task: str, *gold: str) -> Problem:
    return Problem("p", task, "?", "", gold)


def test_a_reply_that_recites_an_example_differs_between_the_rules() -> None:
    recited = "Answer: 2 + 3 = 5\n#### 5\n\nAnswer: 4 * 4 = 16\nSo there are 16."
    asked = [problem("gsm8k", "16"), problem("gsm8k", "5")]
    found = [v.correct for v in judging.judge_numbers(asked, [recited, recited])]
    assert found == [{"strict": False, "flexible": True}, {"strict": True, "flexible": False}]


def test_tasks_are_scored_together_by_their_own_metric() -> None:
    asked = [problem("gsm8k", "16"), problem("triviaqa", "moon"), problem("mmlu", "B")]
    assert score(asked, ["so 16", "The Moon.", "(B)"]) == [False, True, True]


@pytest.mark.slow
def test_mathematics_is_compared_by_value_and_what_hangs_is_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(math500, "MATH_SECONDS", 4.0)
    cases = [
        ("\\frac{14}{3}", "We get $\\boxed{\\frac{28}{6}}$", True),
        ("\\frac{14}{3}", "the answer is 14/3", True),
        ("\\frac12", "\\boxed{0.5}", True),
        ("1000", "\\boxed{1,000}", True),
        ("5", "\\boxed{5\\text{ cm}}", True),
        ("5", "\\boxed{x = 5}", True),
        ("\\text{east}", "\\boxed{east}", True),
        ("2, 1", "\\boxed{\\{1, 2\\}}", True),
        ("x^2 + 2x + 1", "\\boxed{(x+1)^2}", True),
        ("9", "first 9, then \\boxed{8}", False),
        ("9", "\\boxed{-9}", False),
        ("(2, 1)", "\\boxed{(1, 2)}", False),
        ("9", "\\boxed{3} or \\boxed{9}", False),
        ("9", "\\boxed{9", False),
        ("9", "no idea", False),
        ("9", "", False),
        ("9", "\\boxed{9^{9^{9^{9}}}}", False),
        ("9", "9 it is: $9$", True),  # the process before this one was killed
    ]
    asked = [problem("math500", gold) for gold, _, _ in cases]
    found = list(math500.score(asked, [reply for _, reply, _ in cases]))
    assert [verdict.ok for verdict in found] == [right for _, _, right in cases]
    assert [v.reason for v in found if v.reason] == ["timeout"]
    assert found[15].read is None


def test_a_letter_or_an_alias_must_be_the_right_one() -> None:
    letters = [problem("mmlu", "B")] * 3
    replies = ["The answer is (B).", "The answer is (C), not (B).", "who knows"]
    assert [v.ok for v in mmlu.score(letters, replies)] == [True, False, False]
    names = [problem("triviaqa", "moon", "luna")] * 4
    replies = ["the Moon!", "Luna\n\nbecause", "The Moon is it", ""]
    assert [v.ok for v in triviaqa.score(names, replies)] == [True, True, False, False]


TWICE = problem("mbpp", "import math", "assert twice(2) == 4", "assert twice(math.pi) > 6")


def judge_code(replies: Sequence[str]) -> list[Verdict]:
    return list(mbpp.score([TWICE] * len(replies), replies))


def test_the_first_code_block_must_pass_every_assert() -> None:
    right = "def twice(n):\n    return n + n\n"
    found = judge_code(
        [
            f"Here:\n```python\n{right}```\nor\n```python\ndef twice(n): return 0\n```",
            f"```python\ndef twice(n): return 0\n```\n```python\n{right}```",
            right,
            "```python\ndef twice(n): return 4\n```",  # right for the test that was shown only
            "I cannot write this function.",
        ]
    )
    assert [verdict.ok for verdict in found] == [True, False, True, False, False]
    assert [v.reason for v in found[1:4]] == ["assertion failed", None, "assertion failed"]
    assert str(found[4].reason).startswith("error: SyntaxError")


HOSTILE = {
    "fork bomb": "import os\nwhile True: os.fork()",
    "fork bomb of shells": "import subprocess\nwhile True: subprocess.Popen(['sh', '-c', 'sh'])",
    "threads": "import threading\nwhile True: threading.Thread(target=print).start()",
    "endless loop": "while True: pass",
    "endless loop that refuses to be told": (
        "import signal\nfor s in (2, 14, 15, 24): signal.signal(s, lambda *a: None)\n"
        "while True:\n  try:\n    while True: pass\n  except BaseException: pass"
    ),
    "sleep": "import time\ntime.sleep(1000)",
    "memory": "x = [0] * 10**10",
    "memory bit by bit": "x = []\nwhile True: x.append('a' * 10**6)",
    "large file": "open('a', 'w').write('x' * 10**8)",
    "network": "import socket\nsocket.create_connection(('127.0.0.1', 22), 1)",
    "stdin": "twice = lambda n: 2 * n\ninput()",
    "exit": "import sys\nsys.exit(0)",
    "exit at once": "import os\nos._exit(0)",
    "kill": "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)",
    "fake success": "print('passed')\nprint('1 passed, 0 failed')\nimport os\nos._exit(0)",
    "fake success on every descriptor": (
        "import os\nfor i in range(3, 60):\n  try: os.write(i, b'passed')\n"
        "  except OSError: pass\nos._exit(0)"
    ),
    "fake exit": "import os\nos._exit = lambda code: None\nraise SystemExit(0)",
    "another AssertionError": (
        "import builtins\nbuiltins.AssertionError = type('Never', (Exception,), {})\n"
        "def twice(n): return 0"
    ),
    "asserts that call nothing": "import builtins\nbuiltins.__dict__['assert'] = print\ntwice = id",
    "hook": "import sys\nsys.excepthook = lambda *a: None\nraise ValueError",
    "open string": 'def twice(n): return 2 * n\n"""',
    "open branch": "def twice(n): return 2 * n\nif False:",
    "open call": "print(",
    "skipped by return": "def twice(n): return 0\nreturn",
    "encoding": "# coding: utf-7\n+AAo-def twice(n): return 0",
}


@pytest.fixture(scope="module")
def hostile() -> dict[str, Verdict]:
    """Verdicts on all of it, in one go; a second is enough for whatever has an end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judging, "CODE_SECONDS", 1.0)
        return dict(zip(HOSTILE, judge_code(list(HOSTILE.values())), strict=True))


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_code_does_not_pass_and_says_why(hostile: dict[str, Verdict], name: str) -> None:
    assert not hostile[name].ok
    assert hostile[name].reason


def test_code_without_an_end_is_a_timeout(hostile: dict[str, Verdict]) -> None:
    assert {hostile[name].reason for name in HOSTILE if "endless" in name} == {"timeout"}
    assert hostile["sleep"].reason == "timeout"


@pytest.mark.skipif(os.geteuid() != 0, reason="only a caller who is root has another user's files")
def test_code_reads_neither_the_callers_environment_nor_files_nor_writes_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("A_SECRET", "1")
    secret = tmp_path / "secret"
    secret.write_text("1")
    secret.chmod(0o600)
    passing = "def twice(n): return 2 * n\n"
    found = judge_code(
        [
            passing,
            passing + f"open('/proc/{os.getpid()}/environ').read()",
            passing + f"open({str(secret)!r}).read()",
            passing + f"open({str(tmp_path / 'new')!r}, 'w')",
        ]
    )
    assert [verdict.ok for verdict in found] == [True, False, False, False]
    assert all("PermissionError" in str(verdict.reason) for verdict in found[1:])
    assert not (tmp_path / "new").exists()


HEAD = 'import math\n\n\ndef area(r):\n    """The area of a circle."""\n'
CHECK = "def check(candidate):\n    assert 3 < candidate(1) < 4\n    assert candidate(0) == 0\n"
CIRCLE = problem("humaneval", HEAD, CHECK, "area")
BODY = "    return math.pi * r**2\n"


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (BODY, None),
        (f"{BODY}\ndef other(\nprint(area(1))", None),  # a stop string ends it before
        (f"```python\n{BODY}```", None),
        (f"Sure!\n```python\ndef area(r):\n{BODY}\n\nprint(area(2))\n```", None),
        ("```python\ndef pi(): return 3.1\n\ndef area(r):\n    return pi() * r * r\n```", None),
        ("    open('left', 'w').close()\n" + BODY, None),  # cleaning up is not the reply's concern
        ("    return 3.5", "assertion failed"),
        ("    return math.tau * rr", "error: Exception failed: name 'rr' is not defined"),
        ("return math.pi", "error: Exception failed: 'return' outside function (<string>, line 6)"),
        ("    import sys; sys.exit(0)", "error: Exception failed: 0"),
        ("    import os; os._exit(0)", "error: ended early"),
        ("    found.append('passed')", "error: Exception failed: name 'found' is not defined"),
        (
            "",
            "error: Exception failed: '<' not supported between instances of 'int' and 'NoneType'",
        ),
    ],
)
def test_completions_are_judged_by_human_evals_checker(reply: str, reason: str | None) -> None:
    (verdict,) = humaneval.score([CIRCLE], [reply])
    assert (verdict.ok, verdict.reason) == (reason is None, reason)


def test_a_completion_without_an_end_is_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "CODE_SECONDS", 1.0)
    (verdict,) = humaneval.score([CIRCLE], ["    while True: pass"])
    assert (verdict.ok, verdict.reason) == (False, "timeout")
