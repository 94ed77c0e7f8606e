"""A public task: from rows of its data set to shuffled problems, with or without examples."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random

from tasks.problem import Problem
from tasks.sources import Row, Source, digest_rows, read_rows
from tasks.task import Asked, Selection


@dataclass(frozen=True)
class Benchmark:
    """Where a task's rows are and what they look like.

    ``pose`` makes the problem of a row: its place among the rows, the row, and the rows of the
    solved examples. ``fields`` must be in every row. Files may hold more than one split: of those
    rows ``asks`` tells which are problems, and ``shows`` which may stand as an example before a
    given one (example first).
    """

    name: str
    source: Source
    fields: tuple[str, ...]
    pose: Callable[[int, Row, Sequence[Row]], Problem]
    example_fields: tuple[str, ...] = ()
    """What an example needs, where that is not ``fields``."""
    examples: Source | None = None
    """Where examples are on the hub; none: only in a file, if at all."""
    takes_shots: bool = True
    asks: Callable[[Row], bool] = lambda row: True
    shows: Callable[[Row, Row], bool] = lambda example, row: True
    one_file: bool = False
    """Whether the task's file holds its examples too."""

    def select(self, selection: Selection) -> Asked:
        """The problems of a selection: shuffled first, since some files are sorted by subject."""
        examples = self._read_examples(selection)
        rows = self._read(self.source, selection.data, self.fields)
        places = [place for place, row in enumerate(rows) if self.asks(row)]
        Random(f"{self.name}|{selection.shuffle_seed}").shuffle(places)
        problems = [
            self.pose(place, rows[place], self._shown(examples, rows[place], selection.shots))
            for place in places[: selection.limit]
        ]
        self._check(problems, selection)
        name = Path(selection.data).name if selection.data else str(self.source)
        told = {"data": name, "digest": digest_rows(rows)}
        if selection.shots:
            told["examples"] = digest_rows(examples)
        return Asked(tuple(problems), told)

    def _read(self, source: Source, data: str | None, fields: tuple[str, ...]) -> list[Row]:
        rows = read_rows(source, data)
        for row in rows[:1]:
            for field in fields:
                if field not in row:
                    raise ValueError(
                        f"data {data or str(source)!r}: rows have no field {field!r} "
                        f"({', '.join(row)}); task {self.name} needs {', '.join(fields)}"
                    )
        return rows

    def _read_examples(self, selection: Selection) -> list[Row]:
        if not selection.shots:
            if selection.shots_data:
                raise ValueError(f"shots_data {selection.shots_data!r} needs shots of at least 1")
            return []
        if not self.takes_shots:
            raise ValueError(f"shots {selection.shots}: task {self.name} has no examples; valid: 0")
        data = selection.shots_data or (selection.data if self.one_file else None)
        if data is None and (self.examples is None or selection.data):
            raise ValueError(
                f"shots {selection.shots}: name the file of solved examples with --shots-data FILE "
                "(in a sweep: tasks.shots_data)"
            )
        source = self.examples or self.source
        return self._read(source, data, self.example_fields or self.fields)

    def _shown(self, examples: Sequence[Row], row: Row, shots: int) -> list[Row]:
        """The first ``shots`` rows that may stand before ``row``, and are not ``row`` itself."""
        found = list(islice((e for e in examples if self.shows(e, row) and e != row), shots))
        if len(found) < shots:
            raise ValueError(
                f"shots {shots}: there are {len(found)} examples for a problem of {self.name}"
            )
        return found

    def _check(self, problems: Sequence[Problem], selection: Selection) -> None:
        if not problems:
            raise ValueError(f"data {selection.data!r} holds no problem of task {self.name}")
        ids = {problem.id for problem in problems}
        if len(ids) < len(problems):
            raise ValueError(f"data {selection.data!r} holds a problem of {self.name} twice")
