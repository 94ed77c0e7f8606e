"""Rows of public data sets, through ``datasets``: from the hub, or from a file or folder."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

Row = dict[str, Any]

BUILDERS = {".json": "json", ".jsonl": "json", ".parquet": "parquet"}
"""How ``datasets`` reads a file of that name; it may be compressed (``.gz``)."""


@dataclass(frozen=True)
class Source:
    """A split of a data set of the hub."""

    path: str
    name: str | None
    split: str

    def __str__(self) -> str:
        return " ".join(filter(None, (self.path, self.name, self.split)))


def read_rows(source: Source, data: str | None) -> list[Row]:
    """The rows of a split of the hub, or of ``data``: a file, or a folder that is a copy of the
    hub's.

    Raises ``ValueError`` for what cannot be read, ``ConnectionError`` where the hub is not reached.
    """
    # Imported here: it takes a second, and bundled tasks do without.
    from datasets import disable_progress_bars, load_dataset

    disable_progress_bars()  # files are read in no time, and downloads show bars of the hub's own

    builder, file = (source.path, None) if data is None else _builder(Path(data))
    name, split = (None, "train") if file else (source.name, source.split)
    try:
        return load_dataset(builder, name, data_files=file, split=split).to_list()
    except Exception as error:  # the process's edge: files, network and formats of others
        reason = f"{type(error).__name__} {error}".strip()
        if data is None:
            raise ConnectionError(
                f"{source} cannot be loaded from the hub; give its rows with --data FILE ({reason})"
            ) from error
        raise ValueError(f"data {data!r} cannot be read: {reason}") from error


def _builder(path: Path) -> tuple[str, str | None]:
    """What ``datasets`` is to load, and from which file."""
    if path.is_dir():
        return str(path), None
    kinds = [suffix for suffix in path.suffixes if suffix != ".gz"]
    if not path.is_file() or not kinds or kinds[-1] not in BUILDERS:
        raise ValueError(
            f"data {str(path)!r} is neither a folder nor a file that can be read; valid: a copy of "
            f"the hub's folder, or a file {', '.join(BUILDERS)}, with .gz or without"
        )
    if not path.stat().st_size:
        raise ValueError(f"data {str(path)!r} holds no rows")
    return BUILDERS[kinds[-1]], str(path)


def digest_rows(rows: Sequence[Row]) -> str:
    """A short digest of all that the rows say."""
    state = blake2b(digest_size=8)
    for row in rows:
        state.update(json.dumps(row, sort_keys=True, default=str).encode() + b"\n")
    return state.hexdigest()
