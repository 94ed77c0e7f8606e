"""Files that stand whole or not at all; apart, so that who only writes one needs no torch."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Read = TypeVar("Read")


def write_whole(path: Path, text: str) -> None:
    """Replace a file at once: a reader, or a kill, never sees half of it. UTF-8, whatever the
    locale says."""
    partial = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)  # on a full disk it would take what room is left
        raise


def read_back(path: Path, read: Callable[[bytes], Read], remedy: str) -> Read:
    """What ``read`` makes of a file that an earlier run wrote.

    Raises ``ValueError`` with the file's name and the ``remedy`` for one that a full disk, or a
    hand, has damaged; the file stays as it is.
    """
    try:
        return read(path.read_bytes())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        # Without what a parser says of its documentation, and of the bytes that it was given.
        reason = str(error).split(" [type=")[0].split("\n", 1)[-1]
        raise ValueError(f"{path} cannot be read back ({reason}); {remedy}") from error
