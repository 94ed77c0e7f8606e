"""Comma-separated lists as options of a benchmark."""

from collections.abc import Callable
from typing import Any

import typer


def numbers(text: str, kind: Callable[[str], Any] = float) -> list[Any]:
    """A comma-separated list."""
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError as error:
        raise typer.BadParameter(f"{text!r}: {error}") from error
