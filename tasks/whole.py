"""Files that stand whole or not at all; apart, so that who only writes one needs no torch."""

import os
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Replace a file at once: a reader, or a kill, never sees half of it."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.write_text(text)
    partial.replace(path)
