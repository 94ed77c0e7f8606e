"""Registered drafters: ``models:/NAME@ALIAS`` in a configuration becomes a folder on this disk."""

from pathlib import Path
from tempfile import TemporaryDirectory

from cluster.configuration import RUNS
from cluster.tracking import Tracking, open_store
from cluster.tracking.registry import fetch, find_version
from cluster.training_log import DRAFTER_FORMAT
from drafters.config import FOLDERS, REGISTERED, DrafterConfig

COPIES = RUNS / "registered"
"""Holds ``RUN_ID/MODEL-NUMBER``: a version never changes, so it is fetched once. Another store, or
a new one in the same place, has other versions of the same number, but none of the same run."""


def fetch_drafters(drafter: DrafterConfig) -> DrafterConfig:
    """``drafter`` with a folder in place of each registered name: of the version that it names now.

    Raises ``ValueError`` for a store, name, alias or version that is not there, and for a version
    that is no drafter.
    """
    store = open_store()
    folders = {key: _copy(store, key, name) for key, name in drafter.registered.items()}
    return drafter.model_copy(update=folders)


def with_registered_names(drafter: DrafterConfig) -> DrafterConfig:
    """The reverse, for files that other hosts read: a fetched folder is named by its version."""
    names = {}
    for key in FOLDERS:
        folder = Path(getattr(drafter, key) or "").resolve()
        if folder.parent.parent == COPIES.resolve():
            model, _, number = folder.name.rpartition("-")
            names[key] = f"{REGISTERED}{model}/{number}"
    return drafter.model_copy(update=names)


def _copy(store: Tracking, key: str, name: str) -> str:
    try:
        version = find_version(store, name)
        kept = COPIES / version.run_id / f"{version.model}-{version.number}"
        if not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(dir=kept.parent) as place:
                _move(fetch(store, version.uri, Path(place), DRAFTER_FORMAT), kept, name)
    except ValueError as error:
        raise ValueError(f"drafter.{key}: {error}") from error
    return str(kept.resolve())


def _move(found: Path, kept: Path, name: str) -> None:
    if not (found / "config.json").exists():
        raise ValueError(f"model {name!r} is {found.name}, not a drafter's folder")
    try:
        found.rename(kept)
    except OSError:
        if not kept.exists():  # else another process was first
            raise
