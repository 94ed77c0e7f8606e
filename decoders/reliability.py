"""How often drafts are accepted, learnt while decoding: a mass is only its proposer's opinion."""

import numpy as np

DEPTHS, BINS = 16, 12
PRIOR = 5.0
"""So many drafts of a cell its own mass stands for before any was seen."""


class Reliability:
    """How often drafts were accepted, by their depth (fills beyond the root) and log-mass.

    A proposer may know little of the order: a chain's masses are those of its tokens alone, and
    only depth tells its sure drafts from its hopeless ones.
    """

    def __init__(self) -> None:
        self._accepted = np.zeros((DEPTHS, BINS))
        self._seen = np.zeros((DEPTHS, BINS))

    def observe(self, mass: float, depth: int, accepted: bool) -> None:
        """One verified draft."""
        cell = self._cell(mass, depth)
        self._seen[cell] += 1
        self._accepted[cell] += accepted

    def probability(self, mass: float, depth: int) -> float:
        """The acceptance rate of such drafts; the mass itself while few were seen."""
        cell = self._cell(mass, depth)
        mass = min(max(mass, 0.0), 1.0)
        return float((self._accepted[cell] + PRIOR * mass) / (self._seen[cell] + PRIOR))

    @staticmethod
    def _cell(mass: float, depth: int) -> tuple[int, int]:
        # Bins halve 1 - mass above a half and halve the mass below: both ends matter.
        mass = min(max(mass, 1e-6), 1 - 1e-6)
        half = BINS // 2
        if mass >= 0.5:
            index = half + min(half - 1, int(-np.log2(1 - mass)) - 1)
        else:
            index = half - 1 - min(half - 1, int(-np.log2(mass)) - 1)
        return min(depth, DEPTHS) - 1, index
