"""What is on its way to the tracking store, which may be away for a while."""

import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from cluster.passwords import without_passwords

RETRY_SECONDS = 30.0
"""How long a store that did not answer is left alone."""

Entry = TypeVar("Entry")


class LogQueue(Generic[Entry]):
    """Logs entries in the order in which they come. While the store does not answer they wait, and
    the work that they come from goes on.

    ``named`` is what the entries are, in the plural, and ``remedy`` what the user does when the
    store has not come back by the end.
    """

    def __init__(
        self, log: Callable[[Entry], None], tell: Callable[[str], None], named: str, remedy: str
    ) -> None:
        self._log = log
        self._tell = tell
        self._named = named
        self._remedy = remedy
        self._waiting: deque[Entry] = deque()
        self._quiet_until = 0.0

    def add(self, entry: Entry) -> None:
        """Log an entry now or, where the store does not answer, later."""
        self._waiting.append(entry)
        if time.monotonic() < self._quiet_until:
            return
        try:
            self._drain()
        except Exception as error:  # whatever the store's client raises; told, and tried again
            self._quiet_until = time.monotonic() + RETRY_SECONDS
            waiting = f"{len(self._waiting)} {self._named} wait for it"
            self._tell(f"tracking store: {_line(error)}; {waiting}")

    def flush(self) -> None:
        """Log what still waits; ``RuntimeError`` that says what to do when that is not possible."""
        try:
            self._drain()
        except Exception as error:
            raise RuntimeError(
                f"{len(self._waiting)} {self._named} are not in the tracking store "
                f"({_line(error)}); {self._remedy}"
            ) from error

    def _drain(self) -> None:
        while self._waiting:
            self._log(self._waiting[0])
            self._waiting.popleft()


def _line(error: Exception) -> str:
    told = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return without_passwords(told)[:300]
