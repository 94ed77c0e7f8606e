"""Two hosts of one machine with a network between them, each a network namespace."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cluster.test_commands import run

PATIENCE = 900.0
"""Seconds for one command: two hosts share what this machine has."""


class Host(NamedTuple):
    """A namespace, its address, and the working directory of its commands."""

    name: str
    address: str
    folder: Path

    def run(self, *words: object, **more: Any) -> "subprocess.CompletedProcess[str]":
        """One ``maskahead`` command there."""
        inside = ("ip", "netns", "exec", self.name)
        return run(self.folder, *words, inside=inside, seconds=PATIENCE, **more)


@contextmanager
def two_hosts(folders: pytest.TempPathFactory) -> Iterator[tuple[Host, Host]]:
    """Both; skips the test that asks for them without root and iproute2."""
    if os.geteuid() or shutil.which("ip") is None:
        pytest.skip("hosts are network namespaces: run as root, with iproute2 (apt-get install it)")
    names = [f"maskahead-{os.getpid()}-{end}" for end in ("a", "b")]
    addresses = ["10.77.0.1", "10.77.0.2"]
    places = [folders.mktemp(end) for end in ("head", "node")]
    ip = partial(subprocess.run, check=True, capture_output=True, text=True)
    try:
        for name in names:
            try:
                ip(["ip", "netns", "add", name])
            except subprocess.CalledProcessError as error:
                pytest.skip(f"no network namespaces here: {error.stderr.strip()}")
        pair = ["type", "veth", "peer", "name", "eth0", "netns", names[1]]
        ip(["ip", "-n", names[0], "link", "add", "eth0", *pair])
        for name, own, other in zip(names, addresses, addresses[::-1], strict=True):
            ip(["ip", "-n", name, "address", "add", f"{own}/24", "dev", "eth0"])
            for device in ("lo", "eth0"):
                ip(["ip", "-n", name, "link", "set", device, "up"])
            # As on every host that reaches the world: it is how Ray finds a host's own address.
            ip(["ip", "-n", name, "route", "add", "default", "via", other])
        first, second = map(Host, names, addresses, places)
        yield first, second
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
