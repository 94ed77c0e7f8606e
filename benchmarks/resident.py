"""The resident memory of a process and all below it, and whether it grows."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path
from statistics import median
from typing import Literal

WINDOWS = 12
"""Parts of a run, each with its median: neighbouring samples are no independent ones."""
NORMAL = 1.96
"""Standard deviations to either side that hold 95 % of a normal distribution."""

Verdict = Literal["flat", "grows", "undecided"]


def descendants(pid: int) -> list[int]:
    """A process and all below it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        found.append(waiting.pop())
        waiting += children.get(found[-1], [])
    return found


def resident_bytes(pids: Sequence[int]) -> int:
    """Their resident memory, shared pages counted once a process."""
    total = 0
    for pid in pids:
        try:
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except OSError:
            continue
    return total * os.sysconf("SC_PAGE_SIZE")


def target_holders(pids: Sequence[int]) -> list[int]:
    """Those of them that hold the target."""
    found = []
    for pid in pids:
        try:
            title = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if title.startswith((b"ray::ServeReplica", b"ray::TargetRank")):
            found.append(pid)
    return found


@dataclass(frozen=True)
class Trend:
    """Memory over time: its median, and its slope with a 95 % interval."""

    bytes: float
    bytes_per_hour: float
    low: float
    high: float

    def verdict(self, most_percent: float) -> Verdict:
        """Whether it grows by more than so many percent an hour: no, yes, or cannot be told."""
        most = self.bytes * most_percent / 100
        if self.high <= most:
            return "flat"
        return "grows" if self.low > most else "undecided"


def trend(seconds: Sequence[float], values: Sequence[float]) -> Trend:
    """The median slope between the windows of a run, with the interval of its rank test (Theil; Sen
    1968): no distribution is assumed, and single peaks move nothing. Raises ``ValueError`` for
    fewer samples than windows."""
    if len(values) < WINDOWS:
        raise ValueError(f"{len(values)} samples of memory; a trend takes at least {WINDOWS}")
    edges = [len(values) * k // WINDOWS for k in range(WINDOWS + 1)]
    parts = [slice(*pair) for pair in pairwise(edges)]
    points = [(median(seconds[part]), median(values[part])) for part in parts]
    slopes = sorted(3600 * (y - x) / (t - s) for (s, x), (t, y) in combinations(points, 2))
    variance = WINDOWS * (WINDOWS - 1) * (2 * WINDOWS + 5) / 18
    outside = math.floor((len(slopes) - NORMAL * math.sqrt(variance)) / 2)
    return Trend(median(values), median(slopes), slopes[outside], slopes[-1 - outside])
