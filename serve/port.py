"""The port of an endpoint. Ray Serve's proxies share theirs (``SO_REUSEPORT``): of two endpoints on
one port each would answer now and then."""

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

LOOK_SECONDS = 1.0


@contextmanager
def reserved_port(host: str, port: int) -> Iterator[None]:
    """No other endpoint starts on this address of the machine while the ``with`` block lasts, also
    before anything listens there. Raises ``ValueError`` where one has begun to."""
    with socket.socket(socket.AF_UNIX) as held:
        try:
            held.bind(f"\0maskahead serve {host} {port}")  # abstract: it ends with the process
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise ValueError(
                    f"port {port} on {host}: another maskahead serve starts or runs there"
                ) from error
            # Systems without abstract names (all but Linux) reserve nothing.
        yield


def check_port(host: str, port: int) -> None:
    """Raise ``ValueError`` for a port that a proxy cannot listen on, or that somebody listens on.

    Connections of an endpoint that has just ended stay for a minute: a proxy shares the port with
    them, as it would with one that listens.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ValueError(f"port {port} on {host}: {error.strerror}") from error
    with socket.socket(family) as client:
        client.settimeout(LOOK_SECONDS)
        if client.connect_ex((host, port)) == 0:
            raise ValueError(f"port {port} on {host}: {os.strerror(errno.EADDRINUSE)}")
