"""Accuracy of draft-free rules, from their recorded texts; a lossless method's is its rule's."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from decoders.trace import Trace
from models.text import TextCodec
from tasks.bundled import score
from tasks.intervals import paired_interval, wilson_interval
from tasks.problem import Problem

Correct = Mapping[str, bool]
"""Problem id to whether the recorded text solves it."""


class Accuracy(NamedTuple):
    """Share of right replies with Wilson's interval, and the paired difference to the reference on
    the same problems with its interval; all intervals are 95 %."""

    n: int
    right: int
    share: float
    low: float
    high: float
    difference: float
    difference_low: float
    difference_high: float


def score_traces(asked: Sequence[Problem], traces: Sequence[Trace], codec: TextCodec) -> Correct:
    """Judge the recorded replies."""
    found = score(asked, [codec.decode(trace.token_ids) for trace in traces])
    return {problem.id: right for problem, right in zip(asked, found, strict=True)}


def accuracy(correct: Correct, reference: Correct) -> Accuracy:
    """Of the problems of ``correct``, which ``reference`` must know too."""
    ids = list(correct)
    right, n = sum(correct.values()), len(ids)
    theirs = [reference[id] for id in ids]
    low, high = wilson_interval(right, n)
    less, more = paired_interval([correct[id] for id in ids], theirs)
    return Accuracy(n, right, right / n, low, high, (right - sum(theirs)) / n, less, more)
