"""The devices of this machine and the memory that is free on them."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

MEMINFO = Path("/proc/meminfo")
CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")


@dataclass(frozen=True)
class Device:
    """Where weights can lie; memory in bytes."""

    name: str
    """As ``target.device`` spells it."""
    title: str
    free: int
    total: int

    @property
    def is_shared(self) -> bool:
        """Whether all ranks of a target would share its memory: each has a GPU of its own."""
        return self.name == "cpu"


def check_device(device: str, key: str = "target.device") -> None:
    """Raise ``ValueError`` for a device that this process does not have."""
    kind = ""
    with suppress(RuntimeError):
        kind = torch.device(device).type
    if kind not in ("cpu", "cuda"):
        raise ValueError(f"{key} {device!r}: valid are cpu, cuda and cuda:N")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"{key} {device!r}: no CUDA device here; valid: cpu")
    if kind == "cuda" and (torch.device(device).index or 0) >= torch.cuda.device_count():
        valid = ", ".join(("cpu", *(f"cuda:{n}" for n in range(torch.cuda.device_count()))))
        raise ValueError(f"{key} {device!r}: no such CUDA device here; valid: {valid}")


def all_devices() -> list[Device]:
    """The CPU, and every GPU that this process sees."""
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    return [find_device("cpu"), *(find_device(f"cuda:{index}") for index in gpus)]


def find_device(name: str) -> Device:
    """One device, by what ``target.device`` calls it; raises ``ValueError`` if it is not there."""
    check_device(name)
    if torch.device(name).type == "cpu":
        free, total = host_memory()
        return Device("cpu", "CPU", free, total)
    device = torch.device(name)
    free, total = torch.cuda.mem_get_info(device)
    # What this process's allocator keeps and does not use is free for it.
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return Device(name, torch.cuda.get_device_name(device), free, total)


def host_memory() -> tuple[int, int]:
    """Available and total bytes of this machine, or of the container that this process is in.

    What systems other than Linux could give is not told; there all of it counts as available.
    """
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    free = _meminfo("MemAvailable") if MEMINFO.exists() else total
    for limit, used in _container_limits():
        if limit < total:
            free, total = min(free, limit - used), limit
    return max(0, free), total


def _meminfo(key: str) -> int:
    lines = (line.split() for line in MEMINFO.read_text().splitlines())
    return next(int(words[1]) * 1024 for words in lines if words[0] == f"{key}:")


def _container_limits() -> Iterator[tuple[int, int]]:
    """Limit and use of every control group that holds this process, of either version; pages of
    files that could be dropped do not count as used."""
    if not OWN_CGROUPS.exists():
        return
    for line in OWN_CGROUPS.read_text().splitlines():
        number, kinds, path = line.split(":", 2)
        if number == "0":
            root, names = CGROUPS, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in kinds.split(","):
            root = CGROUPS / "memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        inner = root / path.lstrip("/")
        for folder in (inner, *inner.parents):
            if folder.is_relative_to(root):
                yield from _limit(folder, *names)


def _limit(folder: Path, limit: str, used: str, droppable: str) -> Iterator[tuple[int, int]]:
    try:
        most = (folder / limit).read_text().strip()
        if most == "max":
            return
        stats = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        current = int((folder / used).read_text())
    except OSError:  # a container often does not see the groups around its own
        return
    yield int(most), current - int(stats.get(droppable, 0))
