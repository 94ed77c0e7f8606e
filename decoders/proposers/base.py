"""What a proposer reads and returns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from decoders.options import DecodeOptions
from decoders.request import Request
from decoders.stale import Stale
from decoders.state import BlockEnd, State


class Draft(NamedTuple):
    """A future state and its mass: the probability, as the proposer sees it, to be reached."""

    state: State
    mass: float


class Origin(NamedTuple):
    """The request and the absolute start of the block that a view is of."""

    request: Request
    block_start: int


@dataclass(frozen=True)
class View:
    """One request's root as a proposer sees it.

    ``stale`` describes the last accepted state, whose masked positions include all of the root's.
    A state that is finished by ``end`` is never drafted: verifying it would save no forward.
    ``origin`` says whose block this is; only oracles, which look its future up, may read it.
    """

    root: State
    stale: Stale
    options: DecodeOptions
    end: BlockEnd
    origin: Origin | None = None

    @property
    def budget(self) -> int:
        """Most drafts that are asked for (who decides ``auto`` does so before asking)."""
        assert self.options.budget != "auto"
        return self.options.budget


class Proposer(Protocol):
    """Drafts for every view, each list without repeats, parents before their children."""

    def propose(self, views: Sequence[View]) -> list[list[Draft]]: ...
