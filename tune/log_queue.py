"""Rows on their way to the tracking store, which may be away for a while."""

import time
from collections import deque
from collections.abc import Callable

from tune.row import TrialRow

RETRY_SECONDS = 30.0
"""How long a store that did not answer is left alone."""


class LogQueue:
    """Logs rows in the order in which they come. While the store does not answer they wait, since
    they lie on disk anyway and the sweep can go on."""

    def __init__(self, log: Callable[[TrialRow], None], tell: Callable[[str], None]) -> None:
        self._log = log
        self._tell = tell
        self._waiting: deque[TrialRow] = deque()
        self._quiet_until = 0.0

    def add(self, row: TrialRow) -> None:
        """Log a row now or, where the store does not answer, later."""
        self._waiting.append(row)
        if time.monotonic() < self._quiet_until:
            return
        try:
            self._drain()
        except Exception as error:  # whatever the store's client raises; told, and tried again
            self._quiet_until = time.monotonic() + RETRY_SECONDS
            self._tell(f"tracking store: {_line(error)}; {len(self._waiting)} trials wait for it")

    def flush(self) -> None:
        """Log what still waits; ``RuntimeError`` that says what to do when that is not possible."""
        try:
            self._drain()
        except Exception as error:
            raise RuntimeError(
                f"{len(self._waiting)} trials are not in the tracking store ({_line(error)}); all "
                "results are on disk: start the store again, and --resume"
            ) from error

    def _drain(self) -> None:
        while self._waiting:
            self._log(self._waiting[0])
            self._waiting.popleft()


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
