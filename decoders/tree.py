"""The draft tree of SPOT: level-wise search for the D states of largest mass.

Mass of a child = mass of its parent x q(position) x probability of the token; every factor is at
most 1, so a child never outweighs its parent and the best-first set can be grown level by level
(DDTree). Orders that lead to one state are one node: it is searched with its best path's mass,
which keeps that monotonicity, and reported with the mass of all paths through kept parents.

A total order of the states decides every cut, so that a tree of a smaller budget or a larger floor
is the beginning of a larger tree's list.

Shapes: N nodes of a level, L block positions, C candidates of a position.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

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
    """A state and its best path: the fills since the root, as flat indices of candidates, and the
    log-mass, exact and rounded (batch shapes differ between replay and live)."""

    state: State
    fills: tuple[int, ...]
    log_mass: float
    rounded: float
    log_factors: NDArray[np.float64] | None = None
    """Of every candidate's fill, once the node is expanded."""

    def order(self) -> tuple[float, int, State]:
        """Sorting key: larger mass first, then parents before children, then a fixed order of
        states."""
        return (-self.rounded, len(self.fills), self.state)

    def factor(self, index: int) -> float:
        """Of one candidate's fill."""
        assert self.log_factors is not None, "the tree has grown to its end"
        return math.exp(self.log_factors[index])


class DraftTree:
    """One root's tree while it grows."""

    def __init__(
        self,
        root: State,
        candidates: Candidates,
        budget: int,
        floor: float,
        barren: Callable[[State], bool],
    ) -> None:
        """``barren`` states are not kept."""
        self.root = Node(root, (), 0.0, 0.0)
        self.tokens: list[int] = candidates.tokens.ravel().tolist()
        self.log_probs = candidates.log_probs
        self.num_candidates = candidates.tokens.shape[1]
        self.budget = budget
        self.floor = floor
        self.barren = barren
        self.most_fills = len(root)
        """Of a state that has children; known once the root is expanded."""
        self.kept: dict[State, Node] = {}
        """In the order of :meth:`Node.order`."""

    def frontier(self) -> list[Node]:
        """Kept nodes that can be and were not expanded yet (at first, the root): all of one
        depth."""
        nodes = [self.root, *self.kept.values()]
        return [n for n in nodes if n.log_factors is None and len(n.fills) < self.most_fills]

    def grow(self, nodes: Sequence[Node], scores: Sequence[Scores]) -> None:
        """Expand the frontier with its position scores, merge equal states, cut to the budget."""
        if nodes[0] is self.root:
            self.most_fills = int(np.isfinite(scores[0]).sum())
        log_factors_NLC = np.stack(scores)[:, :, None] + self.log_probs
        for node, log_factors in zip(nodes, log_factors_NLC, strict=True):
            node.log_factors = log_factors.ravel()
        found = [*self.kept.values(), *self._children(nodes, log_factors_NLC)]
        best = sorted(found, key=Node.order)[: self.budget]
        self.kept = {node.state: node for node in best}

    def _children(
        self, nodes: Sequence[Node], log_factors_NLC: NDArray[np.float64]
    ) -> Iterable[Node]:
        """Of the unfinished children those that may be kept, each state with its best path."""
        above = np.array([node.log_mass for node in nodes])
        log_masses = (above[:, None, None] + log_factors_NLC).ravel()
        rounded = np.round(log_masses, _MASS_DECIMALS)
        possible = np.flatnonzero((rounded >= self._least()) & (rounded > -math.inf))
        falling = possible[np.argsort(-log_masses[possible], kind="stable")]
        children: dict[State, Node] = {}
        last = math.inf
        for flat, mass in zip(falling.tolist(), rounded[falling].tolist(), strict=True):
            # Of equal masses all are looked at: the order of states decides which are kept.
            enough = len(children) >= self.budget and mass < last
            if enough or math.exp(mass) < self.floor:
                break
            owner, index = divmod(flat, len(self.tokens))
            parent = nodes[owner]
            state = fill(parent.state, ((index // self.num_candidates, self.tokens[index]),))
            # A state's best path comes first.
            if state not in children and not self.barren(state):
                fills = (*parent.fills, index)
                children[state] = Node(state, fills, float(log_masses[flat]), mass)
                last = mass
        return children.values()

    def _least(self) -> float:
        """A lighter node cannot be kept."""
        full = len(self.kept) == self.budget
        return next(reversed(self.kept.values())).rounded if full else -math.inf

    def drafts(self) -> list[Draft]:
        """The kept states in falling order, with their folded masses."""
        masses = {self.root.state: 1.0}
        for node in sorted(self.kept.values(), key=lambda node: len(node.fills)):
            masses[node.state] = sum(
                masses[parent.state] * parent.factor(index) for parent, index in self._parents(node)
            )
        return [
            Draft(node.state, masses[node.state], math.exp(node.rounded))
            for node in self.kept.values()
        ]

    def _parents(self, node: Node) -> Iterator[tuple[Node, int]]:
        """Kept nodes (or the root) that one fill leads from, with that fill."""
        for index in node.fills:
            position = index // self.num_candidates
            state = fill(node.state, ((position, self.root.state[position]),))
            parent = self.kept.get(state, self.root)
            if parent.state == state:
                yield parent, index


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
