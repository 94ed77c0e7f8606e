"""Calls of actors: what was raised over there is raised here."""

from typing import Any

import ray
from ray.exceptions import RayTaskError


def fetch(ref: Any) -> Any:
    """The value of a call; what it raised over there is raised here."""
    try:
        return ray.get(ref)
    except RayTaskError as error:
        raise root_cause(error) from None


def root_cause(error: BaseException) -> BaseException:
    """What the code in the farthest process raised."""
    while isinstance(error, RayTaskError):
        error = error.cause
    return error
