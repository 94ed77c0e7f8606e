"""The processes of this test session's own Ray, found by their titles."""

import os
import signal
from pathlib import Path


def parent_of(pid: int) -> int:
    """The parent's id; 0 for a process that has gone."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(status.rpartition(")")[2].split()[1])


def is_own(pid: int) -> bool:
    """Whether a process descends from this one."""
    while pid > 1:
        pid = parent_of(pid)
        if pid == os.getpid():
            return True
    return False


def own_actors(name: str) -> list[int]:
    """Ids of this session's actors whose process title begins with ``name``."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            title = (entry / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if title.startswith(f"ray::{name}") and is_own(int(entry.name)):
            found.append(int(entry.name))
    return found


def kill_own(name: str) -> None:
    """End one actor at once."""
    actors = own_actors(name)
    assert actors, f"no actor {name}"
    os.kill(actors[0], signal.SIGKILL)
