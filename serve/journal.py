"""One JSON line a request: what was asked and what came of it, no text unless it is asked for."""

import contextvars
import json
import logging
import sys
import time
from datetime import UTC, datetime
from typing import Any

from serve.operation import OperationConfig

Line = dict[str, Any]

CURRENT: contextvars.ContextVar[Line | None] = contextvars.ContextVar("line", default=None)
"""The line of the request that the running task answers."""


def note(**facts: Any) -> None:
    """Add to the line of the current request, if there is one."""
    line = CURRENT.get()
    if line is not None:
        line.update(facts)


class Journal:
    """Writes the lines of one endpoint."""

    def __init__(self, operation: OperationConfig) -> None:
        self.operation = operation
        self._log = logging.Logger("maskahead.requests")
        file = operation.log_file
        handler = logging.FileHandler(file) if file else logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(message)s"))
        self._log.addHandler(handler)

    def open(self, request_id: str, method: str, path: str) -> Line:
        """The line of a request that begins now, to be completed while it is answered."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line: Line = {"time": now, "request": request_id, "method": method, "path": path}
        line["started"] = time.perf_counter()
        CURRENT.set(line)
        return line

    def close(self, line: Line) -> None:
        """Write the line."""
        line["seconds"] = round(time.perf_counter() - line.pop("started"), 6)
        CURRENT.set(None)
        if self.operation.log_requests:
            # In ASCII: no character of a path or a text ends the line, or steers a terminal.
            self._log.info(json.dumps(line, default=str))
