"""The acceptance walk: follow the target from the root through the drafts it really reaches."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from decoders.rules import Step
from decoders.state import State, fill


@dataclass(frozen=True)
class Walk:
    """``steps`` were committed, one a visited copy; ``last`` is the copy of the last one."""

    steps: tuple[Step, ...]
    state: State
    last: int


def walk(
    root: State,
    copy_of: Mapping[State, int],
    step_of: Callable[[int], Step],
    finished: Callable[[State], bool],
    copy: int = 0,
) -> Walk:
    """Commit the target's step from the root (``copy``) and from every draft it leads to.

    A draft counts only when it *is* the state that the target reached (state equality, SPOT
    Proposition 1), so the accepted path is unique and at least one step is committed.
    """
    state, steps = root, []
    while True:
        step = step_of(copy)
        steps.append(step)
        state = fill(state, step)
        following = copy_of.get(state)
        if finished(state) or following is None:
            return Walk(tuple(steps), state, copy)
        copy = following
