"""The Ray node that ``maskahead cluster up`` started from this folder: started, remembered, ended.

``runs/cluster`` holds ``node.json`` (which process, at which address), the token and Ray's log.
"""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from cluster.config import RAY_ENVIRONMENT
from cluster.configuration import RUNS
from cluster.processes import age_mark, members, wait_until_gone
from tasks.whole import read_back, write_whole

PLACE = RUNS / "cluster"
NODE, TOKEN, LOG, LOCK = "node.json", "token", "ray.log", ".lock"
START_SECONDS = 180.0
END_SECONDS = 20.0
STARTED = "Ray runtime started."


class OwnNode(BaseModel):
    """Which process it is, and what cluster it belongs to."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    address: str
    """Of the cluster's head."""
    is_head: bool
    pid: int
    """Of ``ray start``, which leads a session of its own: what it starts can be told by that."""
    mark: str
    """When that process began (see ``age_mark``): a later one of the same number is another."""

    @property
    def alive(self) -> bool:
        return bool(self.mark) and age_mark(self.pid) == self.mark


def own_node(place: Path = PLACE) -> OwnNode | None:
    """The node that was started from this folder, running or not. Raises ``ValueError`` where what
    was remembered cannot be read back."""
    file = place / NODE
    remedy = "put a copy back, or end the Ray that was started from here by hand and remove it"
    return read_back(file, OwnNode.model_validate_json, remedy) if file.exists() else None


@contextmanager
def reserved(place: Path = PLACE) -> Iterator[None]:
    """Room for one node, for the length of a ``with`` block: of two that start together each would
    overwrite the other's token and ``node.json``, and ``down`` could end only one.

    Raises ``ValueError`` while another process starts one, or a node of this folder runs.
    """
    place.mkdir(parents=True, exist_ok=True)
    with (place / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ValueError(
                "another `maskahead cluster up` is under way in this folder; wait for it"
            ) from error
        check_free(place)
        yield


def check_free(place: Path = PLACE) -> None:
    """Raise ``ValueError`` while a node of this folder runs."""
    node = own_node(place)
    if node is not None and node.alive:
        role = "head" if node.is_head else f"node of {node.address}"
        raise ValueError(
            f"a {role} started from this folder runs already (pid {node.pid}); "
            "`maskahead cluster down` ends it"
        )


def start(arguments: list[str], address: str, is_head: bool, place: Path = PLACE) -> OwnNode:
    """Start ``ray start`` with ``arguments``, wait until it says that it runs, remember it.

    Raises ``RuntimeError`` with the end of its log when it does not come up.
    """
    log = place / LOG
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", *arguments, "--block"]
    environment = {name: text for name, text in os.environ.items() if name != "RAY_AUTH_TOKEN"}
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str((place / TOKEN).resolve())}
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            env=RAY_ENVIRONMENT | environment | token,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    node = OwnNode(address=address, is_head=is_head, pid=process.pid, mark=age_mark(process.pid))
    try:  # what cannot be remembered could not be ended later either
        write_whole(place / NODE, node.model_dump_json(indent=1) + "\n")
        _await_start(process, log)
    except BaseException:
        end(node, place)
        raise
    return node


def _await_start(process: subprocess.Popen[bytes], log: Path) -> None:
    ended = time.monotonic() + START_SECONDS
    while STARTED not in (said := log.read_text(errors="replace")):
        if process.poll() is not None or time.monotonic() > ended:
            lines = [line.strip() for line in said.splitlines() if line.strip()]
            raise RuntimeError(f"Ray did not start: {' | '.join(lines[-3:])} ({log})")
        time.sleep(0.1)


def end(node: OwnNode, place: Path = PLACE) -> int:
    """End the node's processes, first by request, then by force, and forget it; returns how many
    there were. Nothing else is touched: they are known by the session that they belong to."""
    ours = members(node.pid, node.mark)
    if node.alive:
        _send(signal.SIGTERM, node.pid)
        wait_until_gone({node.pid: node.mark}, END_SECONDS)
    left = members(node.pid, node.mark) | {
        pid: mark for pid, mark in ours.items() if age_mark(pid) == mark
    }
    for pid in left:
        _send(signal.SIGKILL, pid)
    wait_until_gone(left, END_SECONDS)
    (place / NODE).unlink(missing_ok=True)
    return len(ours)


def _send(number: signal.Signals, pid: int) -> None:
    with suppress(ProcessLookupError):  # the end of another one has ended it meanwhile
        os.kill(pid, number)
