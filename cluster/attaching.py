"""Reaching a cluster that runs already: its address, its token, and the program's own code."""

import logging
import os
import socket
from pathlib import Path
from typing import Any

from ray.exceptions import AuthenticationError, RayError

from cluster.config import AUTO
from cluster.environment import ROOMS, ROOT
from cluster.own_node import PLACE, TOKEN, own_node

REACH_SECONDS = 5.0
LEFT_OUT = ("**/__pycache__", "**/*.pyc", "**/.venv", "**/.git", "**/runs", "**/tests")
"""Of what is sent to the cluster: the rooms of code with their bundled models, and nothing else."""


def find_head(address: str) -> str:
    """The address that ``cluster.address`` stands for: with ``auto``, that of the cluster which
    this folder's ``maskahead cluster up`` started or joined, else what Ray finds on this machine,
    which may have ended: Ray remembers the last one.

    Raises ``ValueError`` for what is no address, or where ``auto`` finds none.
    """
    if address == AUTO:
        node = own_node()
        return node.address if node is not None and node.alive else _found_by_ray()
    check_address(address, "cluster.address", "local, auto, or ")
    return address


def _found_by_ray() -> str:
    from ray._private.services import canonicalize_bootstrap_address

    try:
        found = canonicalize_bootstrap_address(AUTO)
    except ConnectionError:
        found = None
    if found is None:
        raise ValueError(
            "cluster.address 'auto': no Ray runs on this machine; `maskahead cluster up` starts one"
        )
    return found


def check_address(address: str, named: str, beside: str = "") -> None:
    """Raise ``ValueError`` for what is not ``HOST:PORT``; ``named`` is the option, and ``beside``
    what else it takes."""
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isdigit()):
        raise ValueError(f"{named} {address!r}: valid: {beside}HOST:PORT of a running head")


def use_token(place: Path = PLACE) -> None:
    """Let this process show a token: the environment's (``RAY_AUTH_TOKEN``,
    ``RAY_AUTH_TOKEN_PATH``), else this folder's."""
    given = os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH")
    if not given and (place / TOKEN).exists():
        os.environ["RAY_AUTH_TOKEN_PATH"] = given = str((place / TOKEN).resolve())
    if given and "RAY_AUTH_MODE" not in os.environ:
        # Ray reads its environment when it is imported, and asks for no token at a given address.
        from ray._private.authentication import authentication_token_setup as ray_tokens

        ray_tokens.logger.setLevel(logging.ERROR)  # it would warn that tokens are asked for
        ray_tokens.maybe_enable_token_auth_if_token_available(warn_if_disabled=False)


def check_head(address: str, named: str) -> None:
    """Raise ``ValueError`` where no head answers at ``address`` or it takes another token, within
    seconds, or where something else listens, which Ray takes most of a minute to find out;
    ``named`` is the option that says where."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), REACH_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ValueError(
            f"{named} {address!r}: no Ray head answers there ({error}); start one with "
            "`maskahead cluster up`"
        ) from error
    from ray._raylet import GcsClient  # pyright: ignore[reportAttributeAccessIssue] - compiled

    try:
        GcsClient(address=address).get_all_node_info(timeout=REACH_SECONDS)
    except AuthenticationError as error:
        shown = "another token than this process shows" if _has_token() else "a token"
        raise ValueError(
            f"{named} {address!r}: the head there asks for {shown}; take the command that its "
            "`maskahead cluster up` printed, or set RAY_AUTH_TOKEN to its runs/cluster/token"
        ) from error
    except RayError as error:
        raise ValueError(
            f"{named} {address!r}: what listens there is no Ray head ({error})"
        ) from error


def _has_token() -> bool:
    return bool(os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH"))


def shipped_code() -> dict[str, Any]:
    """Ray's ``runtime_env`` that gives every process of a run this program's own code."""
    return {"py_modules": [str(ROOT / room) for room in ROOMS], "excludes": [*LEFT_OUT]}
