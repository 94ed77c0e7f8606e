"""The D best states by sequential best-first search: one expansion at a time."""

import math
from collections.abc import Callable

from decoders.state import State

Factors = Callable[[State], dict[tuple[int, int], float]]
"""``factors(state)[position, token]``: the log of the child's factor, finite, at most 0."""


def best_first(
    root: State, factors: Factors, budget: int, floor: float, finished: Callable[[State], bool]
) -> dict[State, float]:
    """The kept states in the order found, with the log-mass of their best path.

    A state's mass is final when it is the best one left: no later path can be better, since every
    factor is at most 1. Ties go to the fewer fills.
    """
    open_states: dict[State, float] = {root: 0.0}
    kept: dict[State, float] = {}
    while open_states and len(kept) <= budget:
        state = min(open_states, key=lambda s: (-open_states[s], fills(s, root), s))
        kept[state] = open_states.pop(state)
        for (position, token), factor in factors(state).items():
            child = (*state[:position], token, *state[position + 1 :])
            mass = kept[state] + factor
            if finished(child) or child in kept:
                continue
            if floor > 0 and mass < math.log(floor):
                continue
            open_states[child] = max(mass, open_states.get(child, -math.inf))
    del kept[root]
    return kept


def fills(state: State, root: State) -> int:
    """How many positions were filled since the root."""
    return sum(a != b for a, b in zip(state, root, strict=True))
