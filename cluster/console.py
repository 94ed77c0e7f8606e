"""What commands show: results on stdout, everything else on stderr."""

import json
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

PLAIN_WIDTH = 120
"""Columns where the output is no terminal."""

# rich is imported where it prints, so that commands start fast.


def command_line() -> str:
    """The command as it was typed, to stand beside its results."""
    return shlex.join(["maskahead", *sys.argv[1:]])


def say(text: str) -> None:
    """One line on stderr."""
    from rich.console import Console

    Console(stderr=True, highlight=False).print(text, markup=False, soft_wrap=True)


def log_facts(facts: Mapping[str, Any]) -> None:
    """A training loop's report, one line of JSON on stderr."""
    say(json.dumps(dict(facts)))


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """``report(done, total)`` moves a bar on stderr, where that is a terminal."""
    from rich import progress as parts
    from rich.console import Console

    console = Console(stderr=True)
    columns = (
        parts.TextColumn(title),
        parts.BarColumn(),
        parts.MofNCompleteColumn(),
        parts.TimeRemainingColumn(),
    )
    with parts.Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def open_console() -> "Console":
    """Stdout; its tables fold at ``PLAIN_WIDTH`` and not before when they go to a file, and what
    stands in brackets (a folder's name) is no markup."""
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = max(console.width, PLAIN_WIDTH)
    return console


def show_table(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows as a table on stdout, a column for every key that a row has."""
    from rich.box import SIMPLE
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=SIMPLE, padding=(0, 1, 0, 0))
    keys = list(dict.fromkeys(key for row in rows for key in row))
    for index, key in enumerate(keys):
        table.add_column(key, justify="right" if index else "left", overflow="fold")
    for row in rows:
        table.add_row(*(plain(row.get(key)) for key in keys))
    open_console().print(table)


def plain(value: Any) -> str:
    """A value as a table shows it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {plain(inner)}" for key, inner in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(plain, value))
    return str(value)
