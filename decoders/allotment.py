"""How many drafts a forward is worth: expected steps against measured cost.

A round's expected steps are one for each request plus the probabilities of the drafts taken; its
cost is what a forward over that many copies takes. The best steps a second is reached by maximising
steps - rate x cost, where ``rate`` is that throughput itself (Dinkelbach). Drafts of all requests
compete for the same copies.
"""

from collections.abc import Sequence

import numpy as np

from decoders.acceptance import step_between
from decoders.proposers.base import Place
from decoders.state import State


def closed_masses(
    root: State,
    places: Sequence[Place],
    probabilities: Sequence[float],
    mask_id: int,
    whole_steps: bool = False,
) -> list[float]:
    """For each draft the probability that taking it adds: its own, or its best parent's where that
    is smaller, so that taking drafts in falling order always takes a parent first.

    ``places`` stand parents first. One that neither a draft nor the root leads to by one fill (or,
    with ``whole_steps``, by any number of fills) is worth nothing. The next block's first state has
    the full draft that it stands behind as parent. A full draft counts beside it, although that
    pair makes but one step: it saves a whole forward.
    """
    found: dict[Place, float] = {(None, root): 1.0}
    roots: dict[State | None, State] = {None: root}
    for place, probability in zip(places, probabilities, strict=True):
        behind, state = place
        if behind is not None and behind not in roots:
            roots[behind] = state
            parents = [found.get((None, behind), 0.0)]
        elif whole_steps:
            parents = [
                mass
                for (block, before), mass in found.items()
                if block == behind and step_between(before, state, mask_id)
            ]
        else:
            parents = [
                found.get((behind, (*state[:position], mask_id, *state[position + 1 :])), 0.0)
                for position, token in enumerate(state)
                if token != mask_id and roots[behind][position] == mask_id
            ]
        found[place] = min(probability, max(parents, default=0.0))
    return [found[place] for place in places]


def allot(
    masses: Sequence[Sequence[float]], base: int, seconds: np.ndarray, rate: float
) -> list[list[int]]:
    """Which drafts of each request to verify, as ascending indices.

    ``masses`` are :func:`closed_masses`; ``base`` copies are forwarded anyway; ``seconds[n]`` is
    the price of n copies. All counts are tried, since the price has steps.
    """
    order = sorted(
        (-mass, request, index)
        for request, row in enumerate(masses)
        for index, mass in enumerate(row)
        if mass > 0
    )[: len(seconds) - 1 - base]
    gains = np.cumsum([0.0, *(-negative for negative, _, _ in order)])
    best = int(np.argmax(gains - rate * seconds[base : base + len(gains)]))
    taken: list[list[int]] = [[] for _ in masses]
    for _, request, index in order[:best]:
        taken[request].append(index)
    return [sorted(row) for row in taken]


def best_allotment(
    masses: Sequence[Sequence[float]], base: int, seconds: np.ndarray, requests: int
) -> list[list[int]]:
    """The drafts that make a round of ``requests`` fastest: most expected steps a second.

    The rate that :func:`allot` needs is the round's own: it starts at that of a plain forward and
    rises to its fixed point in a few turns (Dinkelbach).
    """
    rate = requests / max(float(seconds[base]), 1e-9)
    while True:
        taken = allot(masses, base, seconds, rate)
        gain = sum(row[i] for row, indices in zip(masses, taken, strict=True) for i in indices)
        copies = base + sum(map(len, taken))
        better = (requests + gain) / max(float(seconds[copies]), 1e-9)
        if better <= rate * (1 + 1e-9):
            return taken
        rate = better
