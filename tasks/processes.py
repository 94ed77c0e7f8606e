"""Independent pieces of work, done by a few processes of one thread each."""

import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import TypeVar

import torch

Job = TypeVar("Job")
Done = TypeVar("Done")


def run_apart(run: Callable[[Job], Done], jobs: Sequence[Job], processes: int) -> Iterator[Done]:
    """What ``run`` makes of every job, in the order they get done; here where one process is
    enough.

    ``run``, jobs and results cross processes, so all of them must pickle.
    """
    if processes == 1 or len(jobs) < 2:
        for job in jobs:
            yield run(job)
        return
    workers = min(processes, len(jobs))
    # Spawned: a forked child would inherit the threads of torch, which do not survive a fork.
    with ProcessPoolExecutor(workers, get_context("spawn"), _start_worker) as pool:
        try:
            for finished in as_completed([pool.submit(run, job) for job in jobs]):
                yield finished.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _start_worker() -> None:
    torch.set_num_threads(1)
    # Ctrl-C reaches the whole group: a worker ends its job, which may then be kept.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
