"""Calls to a cluster that may have been ended before the process that makes them.

A signal to a whole process group or control group (``timeout``, systemd) reaches Ray's processes,
too. Some end at once; the others, and calls to them, wait for minutes.
"""

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait

from ray.exceptions import RayError

from cluster.processes import age_mark

LOOK_SECONDS = 0.2
"""Between two looks at whether a call has returned, and its cluster is whole."""


class ClusterEnded(RuntimeError):
    """The cluster that was called is not there any more, or says nothing."""


def call_in_time(call: Callable[[], object], seconds: float, cluster: Mapping[int, str]) -> None:
    """Make a ``call`` to the cluster. Raises :class:`ClusterEnded` when it fails there, when it has
    not returned after so many seconds, or as soon as one of the ``cluster``'s processes on this
    machine (by number, each with its mark) has ended."""
    returned: Future[object] = Future()
    threading.Thread(target=_run, args=(call, returned), daemon=True).start()
    deadline = time.monotonic() + seconds
    while not wait([returned], LOOK_SECONDS).done:
        if any(age_mark(pid) != mark for pid, mark in cluster.items()):
            raise ClusterEnded("the cluster was ended, too")
        if time.monotonic() > deadline:
            raise ClusterEnded(f"the cluster has not answered for {seconds:g} s")
    try:
        returned.result()
    except RayError as error:
        raise ClusterEnded(f"the cluster was ended, too ({type(error).__name__})") from error


def _run(call: Callable[[], object], returned: "Future[object]") -> None:
    try:
        returned.set_result(call())
    except Exception as error:  # raised where the result is waited for
        returned.set_exception(error)
