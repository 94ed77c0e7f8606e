"""Calls that may hang or eat memory, made in processes that are killed at a deadline.

For code of ours on input of others (symbolic maths on what a model wrote): a limit that runs
inside the same process cannot end a call that never returns to Python. Code of others belongs in
``tasks.sandbox``.
"""

import resource
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

Job = TypeVar("Job")
Done = TypeVar("Done")

START_SECONDS = 120.0
"""In which a process has imported what it needs."""
MEMORY_MB = 4_096
"""Of addresses, which is more than what is used."""


@dataclass(frozen=True)
class Outcome(Generic[Done]):
    """What a call returned, or why it did not: "timeout", "killed", or "error: ..."."""

    value: Done | None
    reason: str | None = None


class _Worker:
    """One process; busy while ``place`` names the job that it is at."""

    def __init__(self, run: Callable[[Any], Any], seconds: float) -> None:
        # Spawned: a forked child would inherit the threads of torch, which do not survive a fork.
        context = get_context("spawn")
        self.connection, other = context.Pipe()
        self.seconds = seconds
        self.process = context.Process(target=_serve, args=(other, run, seconds), daemon=True)
        self.process.start()
        other.close()
        self.place: int | None = None
        self.deadline = 0.0
        if not self.connection.poll(START_SECONDS) or self.receive().reason is not None:
            self.end()
            raise RuntimeError(f"a process for {run.__module__}.{run.__name__} does not start")

    def begin(self, place: int, job: Any) -> None:
        self.place, self.deadline = place, time.monotonic() + self.seconds
        self.connection.send(job)

    def receive(self) -> Outcome[Any]:
        """The outcome that is ready; of a process that died, that it was killed."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):  # the end of its pipe, clean or torn
            return Outcome(None, "killed")

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


def run_bounded(
    run: Callable[[Job], Done],
    jobs: Sequence[Job],
    seconds: float,
    workers: int,
) -> Iterator[Outcome[Done]]:
    """The outcome of every job, in their order; each has ``seconds`` of wall time.

    ``run`` and the jobs cross processes, so they must pickle. A process that is at its deadline, or
    died, is replaced, and the other jobs do not notice.
    """
    todo, found = iter(enumerate(jobs)), dict[int, Outcome[Done]]()
    pool: list[_Worker] = []
    try:
        for place in range(len(jobs)):
            while place not in found:
                _fill(pool, todo, lambda: _Worker(run, seconds), min(workers, len(jobs)))
                found |= _collect(pool)
            yield found.pop(place)
    finally:
        for worker in pool:
            worker.end()


def _fill(
    pool: list[_Worker],
    todo: Iterator[tuple[int, Any]],
    start: Callable[[], _Worker],
    workers: int,
) -> None:
    """Give every free process a job, and start missing ones while there are jobs."""
    for worker in [w for w in pool if w.place is None]:
        if (job := next(todo, None)) is None:
            return
        worker.begin(*job)
    while len(pool) < workers and (job := next(todo, None)) is not None:
        pool.append(start())
        pool[-1].begin(*job)


def _collect(pool: list[_Worker]) -> dict[int, Outcome[Any]]:
    """Wait until a process is done or late; late and dead ones leave the pool."""
    busy = [worker for worker in pool if worker.place is not None]
    until = min(worker.deadline for worker in busy) - time.monotonic()
    ready = wait([worker.connection for worker in busy], max(until, 0.0))
    found: dict[int, Outcome[Any]] = {}
    for worker in busy:
        assert worker.place is not None
        if worker.connection in ready:
            outcome = worker.receive()
        elif time.monotonic() >= worker.deadline:
            outcome = Outcome(None, "timeout")
        else:
            continue
        found[worker.place], worker.place = outcome, None
        if outcome.reason in ("timeout", "killed"):
            worker.end()
            pool.remove(worker)
    return found


def _serve(connection: Connection, run: Callable[[Any], Any], seconds: float) -> None:
    """The process: answers jobs until the other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MB * 2**20, MEMORY_MB * 2**20))
    connection.send(Outcome(None))
    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        # Ends this process by itself should the caller have been killed in the meantime.
        signal.setitimer(signal.ITIMER_REAL, 2 * seconds)
        connection.send(_outcome(run, job))
        signal.setitimer(signal.ITIMER_REAL, 0)


def _outcome(run: Callable[[Any], Any], job: Any) -> Outcome[Any]:
    try:
        return Outcome(run(job))
    except Exception as error:  # the process's edge: what a call raises is its outcome
        return Outcome(None, f"error: {type(error).__name__} {error}".strip()[:500])
