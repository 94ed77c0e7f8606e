"""How many processes of one thread this process may keep busy."""

import os


def usable_cores() -> int:
    """Cores that this process may run on: fewer than the machine's where it is pinned."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
