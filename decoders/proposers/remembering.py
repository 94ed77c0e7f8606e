"""The order proposer of a process that replays the same traces with many settings.

What the order model says of a state depends on the stale distribution and the state alone, not on
budget, floor or hedge, so each is scored once.
"""

from decoders.proposers.order import OrderProposer
from decoders.stale import Stale
from decoders.state import State
from decoders.tree import Scores
from drafters.order_model import OrderModel


class RememberingOrderProposer(OrderProposer):
    """Equal drafts to :class:`OrderProposer`'s; memory grows with every state that it scores.

    Stale distributions are told apart as objects: views of the same trace must share them.
    """

    def __init__(self, model: OrderModel) -> None:
        super().__init__(model)
        self._known: dict[int, tuple[Stale, dict[State, Scores]]] = {}

    def scores_behind(self, stale: Stale) -> dict[State, Scores]:
        # The memory holds the stale distribution too, so that its id is not used again.
        return self._known.setdefault(id(stale), (stale, {}))[1]
