"""``maskahead cluster up``: a head with a token of its own, or a node that joins one."""

import os
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict
from ray.util import get_node_ip_address

from cluster.attaching import check_address, check_head, use_token
from cluster.config import HEAD_PORT, ClusterConfig
from cluster.own_node import PLACE, TOKEN, start


class UpOptions(BaseModel):
    """What the command was given."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    address: str | None = None
    host: str | None = None
    port: int = HEAD_PORT
    num_cpus: int | None = None
    num_gpus: int | None = None
    dashboard: bool = False


def bring_up(options: UpOptions) -> Iterator[str]:
    """Start the node; yields what to tell the user, line by line.

    Raises ``ValueError`` when a port is taken, or the head to join is away or takes another token.
    """
    if options.address is not None:
        check_address(options.address, "--address")
    if options.address is None:
        yield from _start_head(options)
    else:
        yield from _join(options, options.address)


def _start_head(options: UpOptions) -> Iterator[str]:
    host = options.host or get_node_ip_address()
    check_port(host, options.port)
    token = keep_token(shown_token())
    address = f"{host}:{options.port}"
    yield f"starting a head at {address} ..."
    arguments = ["--head", "--port", str(options.port), "--node-ip-address", host]
    arguments += ["--include-dashboard", str(options.dashboard).lower()]
    start([*arguments, *_offers(options)], address, is_head=True)
    yield f"head: {address}, token: {PLACE / TOKEN}"
    others = "folder" if host.startswith("127.") else "host (it has the same versions installed)"
    yield f"to join from another {others}:"
    yield f"  RAY_AUTH_TOKEN={token} maskahead cluster up --address {address}"
    yield "to use it from this folder:"
    yield "  maskahead sweep --set cluster.address=auto"


def _join(options: UpOptions, address: str) -> Iterator[str]:
    use_token()
    check_head(address, "--address")
    keep_token(shown_token())
    arguments = ["--address", address]
    if options.host:
        arguments += ["--node-ip-address", options.host]
    yield f"joining {address} ..."
    start([*arguments, *_offers(options)], address, is_head=False)
    yield f"joined {address}; `maskahead cluster status` shows all nodes"


def _offers(options: UpOptions) -> list[str]:
    """What the node offers. Ports of workers are the system's choice: hosts of a cluster reach
    each other freely, and several nodes may share one."""
    store = ClusterConfig.model_fields["object_store_bytes"].default
    words = ["--object-store-memory", str(store), "--disable-usage-stats"]
    words += ["--min-worker-port", "0", "--max-worker-port", "0"]
    for name, count in (("--num-cpus", options.num_cpus), ("--num-gpus", options.num_gpus)):
        if count is not None:
            words += [name, str(count)]
    return words


def keep_token(token: str) -> str:
    """Write the token where only this user reads it."""
    file = PLACE / TOKEN
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as output:
        output.write(token)
    return token


def shown_token() -> str:
    """The token that this process shows, so that what it starts takes it; a new one where it shows
    none. Raises ``ValueError`` for a file of tokens that cannot be read."""
    if given := os.environ.get("RAY_AUTH_TOKEN"):
        return given
    path = os.environ.get("RAY_AUTH_TOKEN_PATH")
    if not path:
        return secrets.token_hex(32)
    try:
        return Path(path).read_text().strip()
    except OSError as error:
        raise ValueError(f"RAY_AUTH_TOKEN_PATH {path!r}: {error.strerror}") from error


def check_port(host: str, port: int) -> None:
    """Raise ``ValueError`` when no head can listen there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError) as error:
            raise ValueError(f"--port {port} on {host}: {error}; choose another") from error
