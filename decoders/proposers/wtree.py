"""``wtree`` (BlockSpec): a breadth-first tree of the stale order, with the stale top-1 tokens."""

from collections.abc import Sequence

import numpy as np

from decoders.proposers.base import Draft, View
from decoders.rules import commit_rank
from decoders.state import State, fill


class WideTreeProposer:
    """Training-free: every node has a child for each of its ``width`` most confident masks."""

    def propose(self, views: Sequence[View]) -> list[list[Draft]]:
        return [wide_tree(view) for view in views]


def wide_tree(view: View) -> list[Draft]:
    """At most ``budget`` drafts, level by level, more confident fills first.

    Two orders of the same fills are one state, so the levels hold sets of fills. A draft's mass is
    the product of the stale top-1 probabilities of its fills.
    """
    stale, options = view.stale, view.options
    order = [
        (int(stale.positions[i]), int(stale.candidates[i, 0]), float(np.exp(stale.log_probs[i, 0])))
        for i in commit_rank(stale.rank_log_odds, options.cap)
        if view.root[int(stale.positions[i])] == view.end.mask_id
    ]
    masses: dict[State, float] = {view.root: 1.0}
    level = [view.root]
    while level and len(masses) <= view.budget:
        following: list[State] = []
        for state in level:
            open_fills = [f for f in order if state[f[0]] == view.end.mask_id][: options.width]
            for position, token, probability in open_fills:
                child = fill(state, ((position, token),))
                if child in masses or view.barren(child) or len(masses) > view.budget:
                    continue
                masses[child] = masses[state] * probability
                following.append(child)
        level = following
    del masses[view.root]
    return [Draft(state, mass) for state, mass in masses.items()]
