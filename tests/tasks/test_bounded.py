"""Calls that hang, die or raise do not hurt the caller, nor the calls beside them."""

import os
import time

import pytest

from tasks.bounded import Outcome, run_bounded


def work(job: str) -> str:
    if job == "hang":
        while True:
            pass
    if job == "die":
        os._exit(0)
    if job == "eat":
        return "x" * 10**11
    if job == "raise":
        raise ValueError("bad")
    return job.upper()


def test_every_job_has_its_outcome_in_order() -> None:
    jobs = ["a", "hang", "raise", "b", "die", "eat", "c"]
    start = time.monotonic()
    found = list(run_bounded(work, jobs, seconds=1.0, workers=2))
    assert time.monotonic() - start < 60
    assert [outcome.value for outcome in found] == ["A", None, None, "B", None, None, "C"]
    reasons = [outcome.reason for outcome in found]
    assert reasons[1:3] == ["timeout", "error: ValueError bad"]
    assert reasons[4:6] == ["killed", "error: MemoryError"]
    assert found[0] == Outcome("A")


def test_without_jobs_no_process_starts() -> None:
    assert list(run_bounded(work, [], seconds=1.0, workers=2)) == []


def unpicklable() -> None:
    """Only its name is used."""


def test_a_process_that_cannot_start_is_an_error_and_not_an_outcome() -> None:
    unpicklable.__qualname__ = unpicklable.__name__ = "work"
    with pytest.raises(Exception, match="pickle"):
        list(run_bounded(unpicklable, ["a"], seconds=1.0, workers=1))  # type: ignore[arg-type]
