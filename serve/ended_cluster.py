"""Calls to a cluster that may have been ended before the process that makes them.

A signal to a whole process group or control group (``timeout``, systemd) ends Ray's processes, too,
and sooner than their driver: a call to them then fails, or waits for minutes.
"""

import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait

from ray.exceptions import RayError

LOOK_SECONDS = 0.2
"""Between two looks at whether a call has returned, and its cluster is there."""
LISTEN_SECONDS = 1.0
"""In which this machine says whether anybody listens on a port of it."""

Address = tuple[str, int]


class ClusterEnded(RuntimeError):
    """The cluster that was called is not there any more, or says nothing."""


def call_in_time(call: Callable[[], object], seconds: float, door: Address | None) -> None:
    """Make a ``call`` to the cluster. Raises :class:`ClusterEnded` when it fails there, when it has
    not returned after so many seconds, or as soon as nobody listens on the ``door``: the address on
    this machine, if there is one, where the cluster takes requests for as long as it lives."""
    returned: Future[object] = Future()
    threading.Thread(target=_run, args=(call, returned), daemon=True).start()
    deadline = time.monotonic() + seconds
    while not wait([returned], LOOK_SECONDS).done:
        if door and not listens(door):
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


def listens(address: Address) -> bool:
    """Whether somebody accepts connections there; where that cannot be told, somebody does."""
    try:
        socket.create_connection(address, LISTEN_SECONDS).close()
    except OSError as error:
        return not isinstance(error, ConnectionRefusedError)
    return True
