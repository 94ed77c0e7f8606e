"""What somebody who watches a request sees of its rounds."""

from dataclasses import dataclass

from decoders.request import Round
from decoders.rules import Step


@dataclass(frozen=True)
class DraftNode:
    """A copy that rode in the forward. ``fills`` are what it adds to its ``parent``, the index of
    another node (``None``: the root), by absolute positions; the next block's masked copy behind a
    full draft adds nothing. ``mass`` is known where a proposer said it."""

    parent: int | None
    fills: Step
    mass: float | None
    accepted: bool


Confidences = tuple[tuple[float | None, ...], ...]
"""Of every commit of every step."""


@dataclass(frozen=True)
class Sight:
    """One forward's drafts, and how sure its commits were."""

    tree: tuple[DraftNode, ...]
    confidences: Confidences


@dataclass(frozen=True)
class SeenRound:
    """A round; its sight (none of a prefill, nor of drafts verified under a mask); and the seconds
    from joining the batch to its end."""

    round: Round
    sight: Sight | None
    seconds: float
