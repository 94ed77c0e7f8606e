"""API keys: long random words, of which an endpoint knows only the hashes."""

import hmac
import os
import re
import secrets
from collections.abc import Iterable
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path

from serve.operation import OperationConfig

VARIABLE = "MASKAHEAD_API_KEYS"
PREFIX = "mh-"
_LINE = re.compile(r"([\w.@-]{1,64}):([0-9a-f]{64})")


def fresh_key() -> str:
    """A fresh key; with so many random bits a plain hash keeps it secret."""
    return PREFIX + secrets.token_urlsafe(32)


def key_line(name: str, key: str) -> str:
    """The line of a keys file. ``ValueError`` for a name that cannot stand in one."""
    line = f"{name}:{hash_of(key)}"
    check_line(line, "--new-key")
    return line


def hash_of(key: str) -> str:
    return sha256(key.encode()).hexdigest()


def check_line(line: str, where: str) -> None:
    """Raise ``ValueError`` for anything but ``NAME:SHA256``."""
    if _LINE.fullmatch(line) is None:
        # Not the line itself: somebody may have put a key there.
        raise ValueError(
            f"{where}: a line must be NAME:SHA256, the name of letters, digits and . _ @ -, the "
            "hash of 64 hexadecimal digits; maskahead serve --new-key NAME prints one"
        )


def append_key(file: Path, line: str) -> None:
    """Add a line to a keys file that only its owner can read, also to one whose last line, written
    by hand, was left without an end."""
    handle = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(handle, "a+", encoding="utf-8") as out:
        out.seek(0)
        ended = out.read()[-1:] in ("", "\n")
        out.write(f"{line}\n" if ended else f"\n{line}\n")


def known_lines(operation: OperationConfig) -> tuple[str, ...]:
    """The lines of every key that the configuration and the environment of this process name.

    Raises ``ValueError`` for a file that cannot be read or holds anything else.
    """
    lines = [*operation.api_key_hashes]
    for line in lines:
        check_line(line, "serve.api_key_hashes")
    if operation.api_keys_file is not None:
        lines += read_keys(operation.api_keys_file)
    given = (key.strip() for key in os.environ.get(VARIABLE, "").split(","))
    lines += [f"env{i}:{hash_of(key)}" for i, key in enumerate(key for key in given if key)]
    return tuple(dict.fromkeys(lines))


def read_keys(file: Path) -> list[str]:
    """The lines of a keys file, comments and empty ones left out."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise ValueError(f"serve.api_keys_file {str(file)!r}: {reason}") from error
    lines = [line.strip() for line in text.splitlines()]
    kept = [line for line in lines if line and not line.startswith("#")]
    for line in kept:
        check_line(line, f"serve.api_keys_file {str(file)!r}")
    if not kept:
        raise ValueError(f"serve.api_keys_file {str(file)!r} holds no key")
    return kept


class Keyring:
    """Tells whose key was shown; without keys, everybody is welcome."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._hashes = [(name, said) for name, _, said in (line.partition(":") for line in lines)]

    def __bool__(self) -> bool:
        return bool(self._hashes)

    def owner(self, key: str) -> str | None:
        """The name that ``key`` was given to. Takes as long whatever is shown: hashes are compared
        in constant time, and all of them."""
        shown, found = hash_of(key), None
        for name, known in self._hashes:
            if hmac.compare_digest(shown, known):
                found = name
        return found


def check_reach(host: str, operation: OperationConfig) -> None:
    """Raise ``ValueError`` for an endpoint that others can reach and that asks for no key."""
    if is_loopback(host) or operation.allow_no_keys or known_lines(operation):
        return
    raise ValueError(
        f"host {host!r} can be reached by others, and no API key is set; valid: "
        f"serve.api_keys_file (maskahead serve --new-key NAME makes a key), {VARIABLE}, or "
        "serve.allow_no_keys=true"
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches ``host``."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:  # a name, which may stand for any address
        return False
