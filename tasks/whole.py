"""Files that stand whole or not at all; apart, so that who only writes one needs no torch."""

import os
import threading
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Replace a file at once: a reader, or a kill, never sees half of it. UTF-8, whatever the
    locale says."""
    partial = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
