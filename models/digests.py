"""Digests of checkpoints; those of large ones are kept, since reading every byte takes a while."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

FILES = ("config.json", "generation_config.json", "tokenizer.json", "vocab.json", "merges.txt")
DIGESTED_AT_ONCE = 16 << 20
KEPT_FROM = 256 << 20
"""Bytes from which a digest is kept (fewer are read in a moment)."""


def cache_folder() -> Path:
    """Where digests and cost curves are kept: ``MASKAHEAD_CACHE``, else ``~/.cache/maskahead``."""
    return Path(os.environ.get("MASKAHEAD_CACHE", "~/.cache/maskahead")).expanduser()


def digest(path: Path) -> str:
    """A short digest of what decides a model's outputs: configuration, weights, tokenizer; or of
    the one file that ``path`` is.

    That of a large checkpoint is read from :func:`cache_folder` while no file of it has another
    size or time of change.
    """
    files = [path] if path.is_file() else [path / name for name in FILES]
    files = [file for file in (*files, *sorted(path.glob("*.safetensors"))) if file.exists()]
    if sum(file.stat().st_size for file in files) < KEPT_FROM:
        return _read(files)
    kept = cache_folder() / f"digest-{_stamp(files)}"
    with suppress(OSError):
        return kept.read_text()
    found = _read(files)
    write_kept(kept, found, "digest")
    return found


def write_kept(path: Path, text: str, what: str) -> None:
    """Write a file of the cache folder whole, or say on stderr that ``what`` cannot be kept."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text)
        partial.replace(path)
    except OSError as error:
        print(f"{what} not kept in {path.parent}: {error.strerror}", file=sys.stderr)


def _stamp(files: Sequence[Path]) -> str:
    """Names the files as they are now, without reading them."""
    stats = [(str(file.resolve()), file.stat()) for file in files]
    told = repr([(name, stat.st_size, stat.st_mtime_ns, stat.st_ino) for name, stat in stats])
    return blake2b(told.encode(), digest_size=8).hexdigest()


def _read(files: Sequence[Path]) -> str:
    state = blake2b(digest_size=8)
    for file in files:
        state.update(file.name.encode())
        with file.open("rb", buffering=0) as content:
            while piece := content.read(DIGESTED_AT_ONCE):
                state.update(piece)
    return state.hexdigest()
