"""The order proposer of a process that replays the same traces with many settings.

What the order model says of a state depends on the stale distribution and the state alone, not on
budget, floor or hedge, so each is scored once.
"""

from collections.abc import Sequence

from torch import Tensor

from decoders.proposers.base import View
from decoders.proposers.order import OrderProposer
from decoders.stale import Stale
from decoders.state import State
from decoders.tree import Ask, Scores
from drafters.order_model import OrderModel


class RememberingOrderProposer(OrderProposer):
    """Equal drafts to :class:`OrderProposer`'s; memory grows with every state that it scores.

    Stale distributions are told apart as objects: views of the same trace must share them.
    """

    def __init__(self, model: OrderModel) -> None:
        super().__init__(model)
        self._known: dict[int, tuple[Stale, dict[State, Scores]]] = {}

    def score(
        self, views: Sequence[View], asks: list[Ask], embedded: Tensor, was_masked: Tensor
    ) -> list[list[Scores]]:
        known = [self._scores_behind(views[index].stale) for index, _ in asks]
        missing: list[Ask] = []
        for (index, states), scores in zip(asks, known, strict=True):
            new = [state for state in states if state not in scores]
            if new:
                missing.append((index, new))
        if missing:
            found = super().score(views, missing, embedded, was_masked)
            for (index, states), rows in zip(missing, found, strict=True):
                self._scores_behind(views[index].stale).update(zip(states, rows, strict=True))
        return [
            [scores[state] for state in states]
            for (_, states), scores in zip(asks, known, strict=True)
        ]

    def _scores_behind(self, stale: Stale) -> dict[State, Scores]:
        # The memory holds the stale distribution too, so that its id is not used again.
        return self._known.setdefault(id(stale), (stale, {}))[1]
