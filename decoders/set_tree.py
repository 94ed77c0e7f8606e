"""The draft tree over threshold decoding: a node is a state, an edge is a whole step.

The search is that of :mod:`decoders.tree`: mass of a child = mass of its parent x probability of
the step, which is at most 1, so the D nodes of largest mass can be grown level by level; ways that
lead to one state are one node, searched with its best way's mass and reported with the mass of all.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from decoders.proposers.base import Draft
from decoders.rules import Step
from decoders.set_steps import StepFactors, likeliest_steps
from decoders.state import State, fill

_DECIMALS = 4

Ask = tuple[int, list[State]]
"""Which tree asks for the factors of which states."""


@dataclass
class Node:
    """A state with ``fills`` since the root, and the log-mass of its best way there."""

    state: State
    fills: int
    log_mass: float
    parents: dict[State, float] = field(default_factory=dict)
    """Log-probability of the step from every expanded parent."""
    steps: list[tuple[Step, float]] | None = None
    """The likeliest ones from here, once the node is expanded."""

    def order(self) -> tuple[float, int, State]:
        """Sorting key: larger mass first, then parents before children, then a fixed order of
        states."""
        return (-self.log_mass, self.fills, self.state)


class SetTree:
    """One root's tree while it grows. Barren states are drafts only with ``keep_ends``: they need
    no forward of their own, but a lossy rule may accept them."""

    def __init__(
        self,
        root: State,
        budget: int,
        floor: float,
        barren: Callable[[State], bool],
        mask_id: int,
        keep_ends: bool = False,
    ) -> None:
        self.root = Node(root, 0, 0.0)
        self.budget = budget
        self.floor = floor
        self.barren = barren
        self.mask_id = mask_id
        self.keep_ends = keep_ends
        self.open: dict[State, Node] = {}
        self.ends: dict[State, Node] = {}

    @property
    def kept(self) -> list[Node]:
        """The D states of largest mass, in the order of :meth:`Node.order`."""
        return sorted(self.open.values(), key=Node.order)[: self.budget]

    def frontier(self) -> list[Node]:
        """Kept nodes that were not expanded yet (at first, the root)."""
        return [node for node in (self.root, *self.kept) if node.steps is None]

    def grow(self, nodes: Sequence[Node], factors: Sequence[StepFactors]) -> None:
        """Expand the frontier and merge equal states."""
        for node, said in zip(nodes, factors, strict=True):
            node.steps = self._steps(node.state, said)
            self._reach(node)

    def _steps(self, state: State, said: StepFactors) -> list[tuple[Step, float]]:
        """As many steps that no heavier ones can crowd out: D that leave something to do, and D
        ends where they are wanted."""
        return likeliest_steps(
            said, self.budget, lambda step: self.barren(fill(state, step)), self.keep_ends
        )

    def _reach(self, parent: Node) -> None:
        """Take in where a node's steps lead; a better way to an expanded node is handed on."""
        for step, log_prob in parent.steps or ():
            mass = round(parent.log_mass + log_prob, _DECIMALS)
            if math.exp(mass) < self.floor:
                break
            state = fill(parent.state, step)
            found = self.ends if self.barren(state) else self.open
            node = found.setdefault(state, Node(state, parent.fills + len(step), mass))
            if self.mask_id not in state:
                node.steps = []  # full: what follows lies in the next block
            node.parents[parent.state] = log_prob
            if mass > node.log_mass:
                node.log_mass = mass
                self._reach(node)

    def drafts(self) -> list[Draft]:
        """The kept states in falling order, with the mass of all ways through kept ones; barren
        ones follow, at most as many, where they are wanted."""
        ends = sorted(self.ends.values(), key=Node.order) if self.keep_ends else []
        chosen = [*self.kept, *ends[: self.budget]]
        masses = {self.root.state: 1.0}
        for node in sorted(chosen, key=lambda node: node.fills):
            masses[node.state] = sum(
                masses[parent] * math.exp(log_prob)
                for parent, log_prob in node.parents.items()
                if parent in masses
            )
        return [Draft(n.state, masses[n.state], math.exp(n.log_mass)) for n in chosen]


def grow_set_trees(
    trees: Sequence[SetTree], factors: Callable[[list[Ask]], list[list[StepFactors]]]
) -> None:
    """Grow all trees level by level, one ``factors`` call a level, until no new node enters."""
    while True:
        asking = list(_asking(trees))
        if not asking:
            return
        said = factors([(index, [node.state for node in nodes]) for index, nodes in asking])
        for (index, nodes), rows in zip(asking, said, strict=True):
            trees[index].grow(nodes, rows)


def _asking(trees: Sequence[SetTree]) -> Iterator[tuple[int, list[Node]]]:
    for index, tree in enumerate(trees):
        nodes = tree.frontier() if tree.budget else []
        if nodes:
            yield index, nodes
