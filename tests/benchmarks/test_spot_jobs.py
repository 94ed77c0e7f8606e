"""Results are made once, and again only when what decides them changed."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.spot.jobs import keep, kept, run_jobs


@dataclass(frozen=True)
class Square:
    """A job that leaves a mark whenever it runs."""

    path: Path
    number: int

    @property
    def facts(self) -> Mapping[str, Any]:
        return {"number": self.number}

    def run(self) -> Mapping[str, Any]:
        with self.path.with_suffix(".runs").open("a") as marks:
            marks.write("x")
        return {"square": self.number**2}

    @property
    def num_runs(self) -> int:
        return len(self.path.with_suffix(".runs").read_text())


def test_a_result_of_other_facts_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "result.json"
    assert kept(path, {"a": 1}) is None
    assert keep(path, {"a": 1}, {"pair": (1, 2)}) == {"pair": [1, 2]}
    assert kept(path, {"a": 1}) == {"pair": [1, 2]}
    assert kept(path, {"a": 2}) is None


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_only_missing_results_are_made(tmp_path: Path, processes: int) -> None:
    jobs = [Square(tmp_path / f"{n}.json", n) for n in range(3)]
    shown: list[tuple[int, int]] = []
    run_jobs(jobs[:1], processes, lambda done, of: None)
    run_jobs(jobs, processes, lambda done, of: shown.append((done, of)))
    assert [kept(job.path, job.facts) for job in jobs] == [{"square": n * n} for n in range(3)]
    assert [job.num_runs for job in jobs] == [1, 1, 1]
    assert shown == [(1, 3), (2, 3), (3, 3)]
    other = Square(jobs[0].path, 7)
    run_jobs([other, *jobs[1:]], processes, lambda done, of: None)
    assert kept(other.path, other.facts) == {"square": 49}
    assert [job.num_runs for job in jobs] == [2, 1, 1]
