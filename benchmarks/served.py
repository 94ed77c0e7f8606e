"""``maskahead serve`` as its user runs it: the command in a process of its own, asked over HTTP."""

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

import httpx

READY_SECONDS = 300.0
END_SECONDS = 120.0
LOOK_SECONDS = 0.5


class Served:
    """The command on ``config`` and a free port of this machine; a context that leaves none of it
    behind. ``url`` is the endpoint's address without ``/v1``."""

    def __init__(self, config: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        words = ["serve", "--config", str(config), "--port", str(port)]
        self.process = subprocess.Popen([sys.executable, "-m", "maskahead", *words])

    def model(self) -> dict[str, Any]:
        """The card of what is served, once it is ready. Raises ``RuntimeError`` when the command
        ends before that, or takes longer than five minutes."""
        deadline = time.monotonic() + READY_SECONDS
        with httpx.Client(base_url=self.url, timeout=30) as http:
            while not self._is_ready(http):
                if self.process.poll() is not None:
                    raise RuntimeError(f"the endpoint ended with {self.process.returncode}")
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the endpoint is not ready after {READY_SECONDS:g} s")
                time.sleep(LOOK_SECONDS)
            return http.get("/v1/models").json()["data"][0]

    def _is_ready(self, http: httpx.Client) -> bool:
        try:
            return http.get("/readyz").status_code == httpx.codes.OK
        except httpx.TransportError:  # not listening yet
            return False

    def end(self) -> int | None:
        """Ask it to end; its exit code, ``None`` when it did not within two minutes."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None and self.end() is None:
            self.process.kill()
            self.process.wait()


def engine_samples(page: str) -> dict[str, float]:
    """The values on a page of ``/metrics`` that stand without a label, by name."""
    lines = (line.split() for line in page.splitlines() if not line.startswith("#"))
    return {words[0]: float(words[1]) for words in lines if len(words) == 2 and "{" not in words[0]}
