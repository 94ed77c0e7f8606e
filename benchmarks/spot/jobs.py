"""Results that are made once: JSON files that say what decided them, made by a few processes."""

import json
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol

from tasks.processes import run_apart
from tasks.whole import write_whole


class Job(Protocol):
    """Something to compute in another process: where its result goes, and what decides it."""

    @property
    def path(self) -> Path: ...
    @property
    def facts(self) -> Mapping[str, Any]: ...
    def run(self) -> Mapping[str, Any]: ...


def short_digest(facts: Mapping[str, Any]) -> str:
    """Of JSON values."""
    text = json.dumps(facts, sort_keys=True)
    return blake2b(text.encode(), digest_size=8).hexdigest()


def kept(path: Path, facts: Mapping[str, Any]) -> dict[str, Any] | None:
    """The result at ``path``, if the same facts decided it."""
    if not path.exists():
        return None
    content = json.loads(path.read_text(encoding="utf-8"))
    return content["result"] if content["digest"] == short_digest(facts) else None


def keep(path: Path, facts: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """Write a result beside its facts, replacing what other facts decided; returns it as read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"digest": short_digest(facts), "facts": facts, "result": result}
    text = json.dumps(content)
    write_whole(path, text + "\n")
    return json.loads(text)["result"]


def run_jobs(jobs: Sequence[Job], processes: int, report: Callable[[int, int], None]) -> None:
    """Make every result that is missing; ``report(done, of)`` counts the kept ones too."""
    missing = [job for job in jobs if kept(job.path, job.facts) is None]
    done = len(jobs) - len(missing)
    report(done, len(jobs))
    for _ in run_apart(make, missing, processes):
        done += 1
        report(done, len(jobs))


def make(job: Job) -> None:
    """Compute and keep one result."""
    keep(job.path, job.facts, job.run())
