"""The folder of one sweep, ``runs/NAME``: its configuration, what is finished, its results."""

import fcntl
import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tasks.files import flat
from tasks.whole import read_back, write_whole
from tune.config import SweepConfig
from tune.cost import CostCurve
from tune.row import TrialRows

CONFIG, COST, REPLAYED, FINISHED = "config.json", "cost.json", "replay.done", "sweep.done"
IDENTITY, LOCK = "identity.json", ".lock"
WHERE = ("cluster", "pool")
"""Keys that may change when a sweep is resumed: on what it runs, not what it finds."""


class SweepFolder:
    """Paths, and the few facts that a resumed sweep must know."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def rows(self) -> TrialRows:
        return TrialRows(self.path / "trials")

    @property
    def sweep_id(self) -> str:
        """What the tracked runs of this folder carry; a new folder of the same name has another."""
        return str(self._config()["sweep_id"])

    def _config(self) -> dict[str, Any]:
        remedy = "put a copy back, or start another sweep"
        return read_back(self.path / CONFIG, lambda data: {**json.loads(data)}, remedy)

    @property
    def config(self) -> SweepConfig:
        """The configuration that it began with."""
        return SweepConfig.model_validate(self._config()["config"])

    def claim(self, identity: Mapping[str, Any]) -> None:
        """Keep the digests of what the sweep reads, from its beginning on.

        Raises ``ValueError`` where it began with others: the rows of both would stand side by side.
        """
        path = self.path / IDENTITY
        if not path.exists():
            self.write(IDENTITY, json.dumps(dict(identity), indent=2) + "\n")
            return
        remedy = "put a copy back, or start another sweep"
        begun = read_back(path, lambda data: {**json.loads(data)}, remedy)
        for what, digest in begun.items():
            if identity.get(what) != digest:
                raise ValueError(
                    f"--resume: {self.path} began with another {what} ({digest}, now "
                    f"{identity.get(what)}), and its rows are of that; start another sweep"
                )

    def cost(self) -> CostCurve | None:
        """The measured curve: one sweep compares all settings by the same one."""
        path = self.path / COST
        if not path.exists():
            return None
        remedy = "move it away, and a resumed sweep measures again"
        return read_back(path, CostCurve.model_validate_json, remedy)

    def keep_cost(self, cost: CostCurve) -> CostCurve:
        write_whole(self.path / COST, cost.model_dump_json(indent=1) + "\n")
        return cost

    def mark(self, stage: str) -> None:
        """Remember that a stage is complete."""
        write_whole(self.path / stage, "")

    def passed(self, stage: str) -> bool:
        return (self.path / stage).exists()

    def write(self, name: str, text: str) -> None:
        """A result file, replaced at once."""
        write_whole(self.path / name, text)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keep other processes out of ``folder`` for the length of a ``with`` block, however it ends.

    Raises ``ValueError`` while another one is in it.
    """
    with (folder / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ValueError(
                f"--name: another process still works in {folder}; wait for it, or end it first"
            ) from error
        yield


def check_name(name: str) -> None:
    """Raise ``ValueError`` for what is no plain folder name."""
    if not name or Path(name).name != name or name.startswith("."):
        raise ValueError(f"--name {name!r} must be a plain folder name")


def open_folder(runs: Path, name: str | None, resume: bool, config: SweepConfig) -> SweepFolder:
    """A new sweep's folder, or that of the one to go on with.

    Raises ``ValueError`` for a name that is taken or is no folder name, for nothing to resume, and
    for a sweep of another configuration.
    """
    if name is not None:
        check_name(name)
    if resume:
        folder = SweepFolder(runs / name if name else _latest_unfinished(runs))
        _check_same(folder, config)
        return folder
    folder = SweepFolder(_make(runs, name))
    content = {"sweep_id": uuid.uuid4().hex, "config": config.model_dump(mode="json")}
    try:
        folder.write(CONFIG, json.dumps(content, indent=2) + "\n")
    except OSError:
        folder.path.rmdir()  # it would be in the way of this sweep, and nothing to resume
        raise
    return folder


def _make(runs: Path, name: str | None) -> Path:
    """A folder that was not there before; without a name the next number, which another sweep may
    be taking at this moment."""
    while True:
        path = runs / (name or _next_number(runs))
        try:
            path.mkdir(parents=True)
        except FileExistsError as error:
            if name is not None:
                raise ValueError(
                    f"--name {name!r}: {path} exists; add --resume to go on with it, or choose "
                    "another"
                ) from error
        else:
            return path


def _next_number(runs: Path) -> str:
    taken = [int(path.name) for path in runs.glob("*") if path.name.isdigit()]
    return str(max(taken, default=0) + 1)


def _latest_unfinished(runs: Path) -> Path:
    open_sweeps = [p.parent for p in runs.glob(f"*/{CONFIG}") if not (p.parent / FINISHED).exists()]
    if not open_sweeps:
        raise ValueError(f"--resume: {runs} holds no unfinished sweep; name one with --name")
    return max(open_sweeps, key=lambda path: (path / CONFIG).stat().st_mtime_ns)


def _check_same(folder: SweepFolder, config: SweepConfig) -> None:
    if not (folder.path / CONFIG).exists():
        raise ValueError(f"--resume: {folder.path} holds no sweep ({CONFIG} is missing)")
    old, new = flat(folder._config()["config"]), flat(config.model_dump(mode="json"))
    for key in [*old, *(key for key in new if key not in old)]:
        if key.partition(".")[0] not in WHERE and old.get(key) != new.get(key):
            raise ValueError(
                f"--resume: {folder.path} is a sweep with {key} {old.get(key)}, not "
                f"{new.get(key)}; give the same configuration, or start another sweep"
            )
