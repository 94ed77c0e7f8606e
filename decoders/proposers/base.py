"""What a proposer reads and returns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from decoders.options import DecodeOptions
from decoders.stale import Stale
from decoders.state import State


class Draft(NamedTuple):
    """A future state and its mass: the probability, as the proposer sees it, to be reached."""

    state: State
    mass: float


@dataclass(frozen=True)
class View:
    """One request's root as a proposer sees it.

    ``stale`` describes the last accepted state, whose masked positions include all of the root's.
    ``finished`` tells whether a state fills the block or ends the text: verifying it is useless.
    ``prompt_end`` counts the leading positions of the block that are the prompt's tail.
    """

    root: State
    stale: Stale
    options: DecodeOptions
    mask_id: int
    prompt_end: int
    finished: Callable[[State], bool]


class Proposer(Protocol):
    """Drafts for every view, each list without repeats, parents before their children."""

    def propose(self, views: Sequence[View]) -> list[list[Draft]]: ...
