"""Files of prompts and of results: JSON lines, checked whole before use, resumable."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from pydantic import ValidationError

from decoders.options import DecodeOptions
from decoders.prompts import PromptRow, build_request
from decoders.refusals import check_request
from models.invalid import one_line
from models.spec import TargetSpec
from models.text import TextCodec
from tasks.whole import read_back


@dataclass(frozen=True)
class PromptFile:
    """The rows of a prompts file; ``lines[i]`` is the line number of ``rows[i]``."""

    path: Path
    rows: tuple[PromptRow, ...]
    lines: tuple[int, ...]

    @property
    def digest(self) -> str:
        """A short digest of all that the rows say."""
        return digest_rows(self.rows)

    def check(self, options: DecodeOptions, spec: TargetSpec, codec: TextCodec | None) -> None:
        """Raise ``ValueError`` with its line number for a row that cannot be decoded."""
        for line, row in zip(self.lines, self.rows, strict=True):
            try:
                check_request(build_request(row, options, codec), spec)
            except ValueError as error:
                raise ValueError(f"{self.path} line {line}: {error}") from error


def read_prompts(path: Path) -> PromptFile:
    """All rows of a JSON lines file; ``ValueError`` with the line number of the first bad one."""
    rows: list[PromptRow] = []
    line_of: dict[str, int] = {}
    for number, text in enumerate(_lines(path), start=1):
        if not text.strip():
            continue
        try:
            row = _parse_row(text)
            if row.id in line_of:
                raise ValueError(f"id {row.id!r} stands on line {line_of[row.id]} already")
        except ValueError as error:
            raise ValueError(f"{path} line {number}: {error}") from error
        rows.append(row)
        line_of[row.id] = number
    return PromptFile(path, tuple(rows), tuple(line_of.values()))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise ValueError(f"prompts {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ValueError(f"{path} line {line}: not UTF-8 text") from error


def _parse_row(text: str) -> PromptRow:
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON ({error.msg} at column {error.colno})") from error
    if not isinstance(values, dict):
        raise ValueError("a row must be an object with id and prompt or prompt_ids")
    try:
        return PromptRow.model_validate(values)
    except ValidationError as error:
        raise ValueError(one_line(error, PromptRow)) from error


def digest_rows(rows: Iterable[PromptRow]) -> str:
    """A short digest of prompt rows and their order."""
    state = blake2b(digest_size=8)
    for row in rows:
        state.update(row.model_dump_json(exclude_none=True).encode() + b"\n")
    return state.hexdigest()


STDOUT = Path("-")
"""The name of a results file that is standard output."""


class ResultsFile:
    """Result rows in a given order, each written as soon as all before it are.

    A file beside it (``NAME.run.json``) says what run the rows belong to. Opening a file of the
    same run goes on behind the rows that stand there; one of another run is refused untouched.
    Standard output begins anew.
    """

    def __init__(self, path: Path, ids: Sequence[str], run: Mapping[str, Any]) -> None:
        """``ids`` are those of all rows, in order; ``run`` is JSON and decides the rows."""
        self.path = path
        self.ids = ids
        self.run = json.loads(json.dumps(run))
        self.side = path.with_name(path.name + ".run.json")
        self._waiting: dict[str, dict[str, Any]] = {}
        self._num_kept = 0 if path == STDOUT else self._keep()
        self._next = self._num_kept

    @property
    def num_kept(self) -> int:
        """Rows that an earlier run had written."""
        return self._num_kept

    def __enter__(self) -> "ResultsFile":
        to_stdout = self.path == STDOUT
        self._file: IO[str] = sys.stdout if to_stdout else self.path.open("a", encoding="utf-8")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not sys.stdout:
            self._file.close()

    def write(self, row: dict[str, Any]) -> None:
        """Take one row, and write those whose turn has come."""
        self._waiting[row["id"]] = row
        while self._next < len(self.ids) and self.ids[self._next] in self._waiting:
            ready = self._waiting.pop(self.ids[self._next])
            self._file.write(json.dumps(ready, ensure_ascii=False) + "\n")
            self._next += 1
        self._file.flush()

    def _keep(self) -> int:
        """Check what stands in the file; a last line that was not written whole is cut off."""
        data = self.path.read_bytes() if self.path.exists() else b""
        if data:
            self._check_run()
        else:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.side.write_text(json.dumps(self.run, indent=2) + "\n", encoding="utf-8")
        whole = data[: data.rfind(b"\n") + 1]
        kept = [_row_id(line) for line in whole.splitlines()]
        if kept != list(self.ids[: len(kept)]):
            raise ValueError(f"{self.path} holds rows of other prompts; choose another file")
        if len(whole) < len(data):
            with self.path.open("r+b") as file:
                file.truncate(len(whole))
        return len(kept)

    def _check_run(self) -> None:
        if not self.side.exists():
            raise ValueError(
                f"{self.path} exists and no {self.side.name} says what wrote it; choose another "
                "file, or move it away"
            )
        remedy = "choose another file for the results, or move both away"
        old = flat(read_back(self.side, lambda data: {**json.loads(data)}, remedy))
        new = flat(self.run)
        for key in old.keys() | new.keys():
            if old.get(key) != new.get(key):
                raise ValueError(
                    f"{self.path} holds results with {key} {old.get(key)!r}, not "
                    f"{new.get(key)!r}; choose another file, or move it away"
                )


def _row_id(line: bytes) -> str | None:
    """The id of a written row; ``None`` for a line that is none."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row.get("id") if isinstance(row, dict) else None


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings with dotted keys."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        nested = isinstance(value, Mapping)
        found |= flat(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
    return found
