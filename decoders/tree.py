"""The draft tree of SPOT: level-wise search for the D states of largest mass.

Mass of a child = mass of its parent x q(position) x probability of the token; every factor is at
most 1, so a child never outweighs its parent and the best-first set can be grown level by level
(DDTree). Orders that lead to one state are one node: it is searched with its best path's mass,
which keeps that monotonicity, and reported with the mass of all paths through kept parents.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from decoders.proposers.base import Draft
from decoders.state import State, fill

_MASS_DECIMALS = 4

Scores = NDArray[np.float64]
"""``log q(position)`` over the block, -inf where it is filled."""

Ask = tuple[int, list[State]]
"""Which tree asks for the scores of which states."""


@dataclass(frozen=True)
class Candidates:
    """The tokens that a tree may put at each position of the block, and their log-probabilities.

    ``tokens[L, C]`` and ``log_probs[L, C]``; -inf where there is no such candidate.
    """

    tokens: NDArray[np.int64]
    log_probs: NDArray[np.float64]


@dataclass
class Node:
    """A state, its depth (fills since the root) and the log-mass of its best path."""

    state: State
    depth: int
    log_mass: float
    parents: list[tuple[State, float]] = field(default_factory=list)
    expanded: bool = False

    def order(self) -> tuple[float, int, State]:
        """Sorting key: larger mass first (rounded in log space, since batch shapes differ between
        replay and live), then parents before children, then a fixed order of states."""
        return (-round(self.log_mass, _MASS_DECIMALS), self.depth, self.state)


class DraftTree:
    """One root's tree while it grows."""

    def __init__(
        self,
        root: State,
        candidates: Candidates,
        budget: int,
        floor: float,
        finished: Callable[[State], bool],
    ) -> None:
        self.root = Node(root, 0, 0.0)
        self.candidates = candidates
        self.budget = budget
        self.log_floor = math.log(floor) if floor > 0 else -math.inf
        self.finished = finished
        self.kept: dict[State, Node] = {}

    def frontier(self) -> list[Node]:
        """Kept nodes that were not expanded yet (at first, the root)."""
        nodes = [self.root, *self.kept.values()]
        return [node for node in nodes if not node.expanded]

    def grow(self, nodes: Sequence[Node], scores: Sequence[Scores]) -> None:
        """Expand ``nodes`` with their position scores, merge equal states, cut to the budget."""
        for node, row in zip(nodes, scores, strict=True):
            node.expanded = True
            for child, log_factor in self._children(node, row):
                known = self.kept.get(child)
                log_mass = node.log_mass + log_factor
                if known is None:
                    known = self.kept[child] = Node(child, node.depth + 1, log_mass)
                known.log_mass = max(known.log_mass, log_mass)
                known.parents.append((node.state, log_factor))
        best = sorted(self.kept.values(), key=Node.order)[: self.budget]
        self.kept = {node.state: node for node in best}

    def _children(self, node: Node, row: Scores) -> list[tuple[State, float]]:
        """The at most ``budget`` best unfinished children with the log of their factor."""
        factors = row[:, None] + self.candidates.log_probs
        flat = np.round(factors.ravel(), _MASS_DECIMALS)
        children = []
        # A fill can finish the state at one position only (the first masked one), so what is not
        # kept among the best is at most that position's candidates.
        most = self.budget + factors.shape[1]
        for index in np.argsort(-flat, kind="stable")[:most]:
            position, choice = divmod(int(index), factors.shape[1])
            factor = float(factors[position, choice])
            if factor == -math.inf or node.log_mass + factor < self.log_floor:
                break
            token = int(self.candidates.tokens[position, choice])
            child = fill(node.state, ((position, token),))
            if not self.finished(child):
                children.append((child, factor))
        return children

    def drafts(self) -> list[Draft]:
        """The kept states, parents first, with their folded masses."""
        masses = {self.root.state: 1.0}
        for node in sorted(self.kept.values(), key=lambda node: (node.depth, node.order())):
            masses[node.state] = sum(
                masses[parent] * math.exp(factor)
                for parent, factor in node.parents
                if parent in masses
            )
        del masses[self.root.state]
        return [Draft(state, mass) for state, mass in masses.items()]


def grow_trees(
    trees: Sequence[DraftTree], score: Callable[[list[Ask]], list[list[Scores]]]
) -> None:
    """Grow all trees level by level, one ``score`` call a level, until no new node enters."""
    while True:
        frontiers = [(index, tree.frontier()) for index, tree in enumerate(trees)]
        asking = [(index, nodes) for index, nodes in frontiers if nodes and trees[index].budget]
        if not asking:
            return
        scores = score([(index, [node.state for node in nodes]) for index, nodes in asking])
        for (index, nodes), rows in zip(asking, scores, strict=True):
            trees[index].grow(nodes, rows)
