"""``chain`` (SSD): the most confident positions of the stale distribution, filled one by one."""

from collections.abc import Sequence

import numpy as np

from decoders.proposers.base import Draft, View
from decoders.rules import commit_rank
from decoders.state import fill


class ChainProposer:
    """Training-free: draft j fills the first j positions in stale commit order."""

    def propose(self, views: Sequence[View]) -> list[list[Draft]]:
        return [chain(view) for view in views]


def chain(view: View) -> list[Draft]:
    """At most ``budget`` drafts, shortest first; their mass is the product of the stale top-1
    probabilities along the chain."""
    stale, state, mass = view.stale, view.root, 1.0
    drafts: list[Draft] = []
    for index in commit_rank(stale.rank_log_odds, view.options.cap):
        position = int(stale.positions[index])
        if state[position] != view.end.mask_id:
            continue
        if len(drafts) == view.budget:
            break
        state = fill(state, ((position, int(stale.candidates[index, 0])),))
        mass *= float(np.exp(stale.log_probs[index, 0]))
        if view.barren(state):
            break
        drafts.append(Draft(state, mass))
    return drafts
