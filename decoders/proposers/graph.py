"""``graph`` (Spiffy): a fixed graph of fills by rank, instantiated with the stale distribution."""

import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from decoders.draft_graph import DraftGraph, GraphFile, Node, load_graphs
from decoders.proposers.base import Draft, View
from decoders.rules import commit_rank
from decoders.stale import Stale
from decoders.state import State, fill

BUNDLED_GRAPH = Path(__file__).parents[2] / "drafters" / "bundled" / "graph.json"


class GraphProposer:
    """Drafts from calibrated graphs: the one of the cap nearest to a request's."""

    def __init__(self, graphs: GraphFile) -> None:
        self.graphs = graphs

    def propose(self, views: Sequence[View]) -> list[list[Draft]]:
        return [instantiate(self.graphs.at(view.options.cap), view) for view in views]


def find_graph(path: str | None, target_folder: Path) -> Path:
    """The file named by ``path``, else ``graph.json`` in the target's folder, else the bundled
    one."""
    if path is not None:
        return Path(path)
    beside = target_folder / "graph.json"
    return beside if beside.exists() else BUNDLED_GRAPH


def open_graph_proposer(path: Path) -> GraphProposer:
    """The proposer of a graph file."""
    return GraphProposer(load_graphs(path))


def instantiate(graph: DraftGraph, view: View) -> list[Draft]:
    """The graph's first ``budget`` nodes that exist here, parents before their children.

    A node does not exist where it names more positions than are masked, where it is barren, where
    the geometric mean of its fills' probabilities is below ``prune``, or where no parent of it
    exists. Its mass is the share of calibration states that reached it.
    """
    stale, options = view.stale, view.options
    rows = [
        int(i)
        for i in commit_rank(stale.rank_log_odds, options.cap)
        if view.root[int(stale.positions[i])] == view.end.mask_id
    ]
    fill_of = cache(lambda rank, choice: _stale_fill(stale, rows[rank], choice))
    states: dict[Node, State] = {(): view.root}
    drafts: list[Draft] = []
    for node, parents, reached in zip(graph.nodes, graph.parents, graph.reached, strict=True):
        if len(drafts) == view.budget:
            break
        if node[-1][0] >= len(rows) or not any(parent in states for parent in parents):
            continue
        fills = [found for found in (fill_of(i, j) for i, j in node) if found]
        if len(fills) < len(node):
            continue
        total = sum(each.log_prob for each in fills)
        if math.exp(total / len(fills)) < options.prune:
            continue
        state = fill(view.root, tuple(each.commit for each in fills))
        if view.barren(state):
            continue
        states[node] = state
        drafts.append(Draft(state, reached))
    return drafts


class _Fill(NamedTuple):
    commit: tuple[int, int]
    log_prob: float
    """Of the token in the raw stale distribution."""


def _stale_fill(stale: Stale, row: int, choice: int) -> _Fill | None:
    """A candidate of the stale distribution, if it can be drawn: small vocabularies have few, and
    filters leave some out."""
    scores = stale.scores[row]
    if choice >= len(scores) or not np.isfinite(scores[choice]):
        return None
    token = int(stale.candidates[row, choice])
    known = np.flatnonzero(stale.ids[row] == token)
    log_prob = float(stale.log_probs[row, known[0]]) if len(known) else -math.inf
    return _Fill((int(stale.positions[row]), token), log_prob)
