"""Processes told apart by number and age, from ``/proc``: a number alone may be used again."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

PROC = Path("/proc")
PARENT, SESSION, STARTED = 1, 3, 19
"""Places in ``/proc/PID/stat`` behind the process's name."""


def age_mark(pid: int) -> str:
    """When a process began, on which boot of the machine; empty for one that is not there, or that
    has ended and only waits to be collected."""
    fields = _stat(pid)
    if not fields or fields[0] == "Z":
        return ""
    boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}:{fields[STARTED]}"


def members(session: int, mark: str) -> dict[int, str]:
    """The processes of a session whose leader began at ``mark``, each with its own mark."""
    if age_mark(session) not in ("", mark):
        return {}  # another process has got the number
    found = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            fields = _stat(int(entry.name))
            if fields and fields[0] != "Z" and int(fields[SESSION]) == session:
                found[int(entry.name)] = age_mark(int(entry.name))
    boot = mark.partition(":")[0]
    return {pid: own for pid, own in found.items() if own.startswith(f"{boot}:")}


def children(pid: int) -> dict[int, str]:
    """The processes that ``pid`` has started and that run, each with its mark."""
    numbers = [entry.name for entry in PROC.iterdir() if entry.name.isdigit()]
    own = [
        int(number) for number in numbers if _stat(int(number))[PARENT : PARENT + 1] == [str(pid)]
    ]
    return {each: mark for each in own if (mark := age_mark(each))}


def wait_until_gone(processes: Mapping[int, str], seconds: float) -> bool:
    """Whether all of them end within so many seconds."""
    ended = time.monotonic() + seconds
    while any(mark and age_mark(pid) == mark for pid, mark in processes.items()):
        if time.monotonic() > ended:
            return False
        time.sleep(0.05)
    return True


def _stat(pid: int) -> list[str]:
    """The fields of ``/proc/PID/stat`` behind the name, which may hold anything; none for no such
    process."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
