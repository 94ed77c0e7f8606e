"""Whether two mathematical expressions are equal, by math-verify. Importing it takes seconds."""

import logging

from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

_BOXED_FIRST = LatexExtractionConfig(boxed_match_priority=0)

# Its warning that its own time limits are off: a process that is killed keeps better ones.
logging.getLogger("math_verify").setLevel(logging.ERROR)


def equal(gold_and_reply: tuple[str, str]) -> tuple[bool, str | None]:
    """Whether the answer of a reply equals a gold expression in LaTeX, and the answer as read.

    What is boxed counts before any other expression. Has no time limit of its own; the gold comes
    first, since math-verify does not treat both sides alike.
    """
    gold, reply = gold_and_reply
    expected = parse(f"\\boxed{{{gold}}}", [_BOXED_FIRST], parsing_timeout=0)
    answer = parse(reply, [_BOXED_FIRST, ExprExtractionConfig()], parsing_timeout=0)
    read = str(answer[-1]) if answer else None
    return verify(expected, answer, timeout_seconds=0), read
