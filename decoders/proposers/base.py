"""What a proposer reads and returns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from decoders.options import DecodeOptions
from decoders.request import Request
from decoders.stale import Stale
from decoders.state import BlockEnd, State

Place = tuple[State | None, State]
"""A state of the active block behind ``None``, or one of the next block behind the full state of
the active one that it was drafted for."""


class Draft(NamedTuple):
    """A future state and its mass: the probability, as the proposer sees it, to be reached.

    ``path_mass`` is that of its likeliest order alone: what the floor ``gamma`` is compared with.
    It stays 1 where the method knows no floor. ``behind`` is set by the loop alone.
    """

    state: State
    mass: float
    path_mass: float = 1.0
    behind: State | None = None

    @property
    def place(self) -> Place:
        return self.behind, self.state


class Origin(NamedTuple):
    """The request and the absolute start of the block that a view is of."""

    request: Request
    block_start: int


@dataclass(frozen=True)
class View:
    """One request's root as a proposer sees it.

    ``stale`` describes the last accepted state, whose masked positions include all of the root's.
    A :meth:`barren` state is never drafted. With ``crosses``, copies of the next block can ride
    behind a draft that fills the block. ``origin`` says whose block this is; only oracles, which
    look its future up, may read it.
    ``floor`` raises the mass floor of the options where ``auto`` knows what a draft costs.
    """

    root: State
    stale: Stale
    options: DecodeOptions
    end: BlockEnd
    origin: Origin | None = None
    floor: float = 0.0
    crosses: bool = False

    @property
    def budget(self) -> int:
        """Most drafts that are asked for (who decides ``auto`` does so before asking)."""
        assert self.options.budget != "auto"
        return self.options.budget

    @property
    def gamma(self) -> float:
        """The mass floor: of the options, or what a draft is worth at least."""
        return max(self.options.gamma, self.floor)

    def barren(self, state: State) -> bool:
        """Whether verifying ``state`` saves no forward: it ends the text, or it fills the block and
        nothing can ride behind it."""
        full = self.end.mask_id not in state
        return self.end.text_ended(state) or (full and not self.crosses)


class Proposer(Protocol):
    """Drafts for every view, each list without repeats, a parent before its child.

    Lists are nested: the states of a smaller budget are the first ones of a larger budget, and
    those of a floor ``gamma`` the first ones of no floor, since path masses never rise.
    """

    def propose(self, views: Sequence[View]) -> list[list[Draft]]: ...
