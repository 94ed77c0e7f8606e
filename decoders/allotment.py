"""How many drafts a forward is worth: expected steps against measured cost.

A round's expected steps are one for each request plus the probabilities of the drafts taken; its
cost is what a forward over that many copies takes. The best steps a second is reached by maximising
steps - rate x cost, where ``rate`` is that throughput itself (Dinkelbach). Drafts of all requests
compete for the same copies.
"""

from collections.abc import Sequence

import numpy as np

from decoders.state import State


def closed_masses(
    root: State, states: Sequence[State], probabilities: Sequence[float], mask_id: int
) -> list[float]:
    """For each draft the probability that taking it adds: its own, or its best parent's where that
    is smaller, so that taking drafts in falling order always takes a parent first.

    ``states`` stand parents first. One that neither a draft nor the root leads to by one fill is
    worth nothing.
    """
    found: dict[State, float] = {root: 1.0}
    for state, probability in zip(states, probabilities, strict=True):
        parents = (
            found.get((*state[:position], mask_id, *state[position + 1 :]), 0.0)
            for position, token in enumerate(state)
            if token != mask_id and root[position] == mask_id
        )
        found[state] = min(probability, max(parents, default=0.0))
    return [found[state] for state in states]


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
