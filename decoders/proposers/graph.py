"""``graph`` (Spiffy): a fixed graph of fills by rank, instantiated with the stale distribution."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from decoders.draft_graph import DraftGraph, GraphFile, Node, load_graphs
from decoders.proposers.base import Draft, View
from decoders.rules import commit_rank
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

    A node does not exist where it names more positions than are masked, where it is finished, where
    the geometric mean of its fills' probabilities is below ``prune``, or where no parent of it
    exists. Its mass is the share of calibration states that reached it.
    """
    stale, options = view.stale, view.options
    rows = [
        int(i)
        for i in commit_rank(stale.rank_log_odds, options.cap)
        if view.root[int(stale.positions[i])] == view.end.mask_id
    ]
    states: dict[Node, State] = {(): view.root}
    drafts: list[Draft] = []
    for node, reached in zip(graph.nodes, graph.reached, strict=True):
        if len(drafts) == view.budget:
            break
        parents = (tuple(f for f in node if f != last) for last in node)
        if node[-1][0] >= len(rows) or not any(parent in states for parent in parents):
            continue
        fills = [(rows[i], j) for i, j in node]
        if not all(_can_be_drawn(view, row, choice) for row, choice in fills):
            continue
        if _mean_probability(view, fills) < options.prune:
            continue
        step = tuple((int(stale.positions[row]), int(stale.candidates[row, j])) for row, j in fills)
        state = fill(view.root, step)
        if view.end.finished(state):
            continue
        states[node] = state
        drafts.append(Draft(state, reached))
    return drafts


def _can_be_drawn(view: View, row: int, choice: int) -> bool:
    """Whether the candidate exists: small vocabularies have few, and filters leave some out."""
    scores = view.stale.scores[row]
    return choice < len(scores) and bool(np.isfinite(scores[choice]))


def _mean_probability(view: View, fills: Sequence[tuple[int, int]]) -> float:
    """Geometric mean of the stale probabilities of ``(row, candidate)`` fills."""
    stale = view.stale
    total = 0.0
    for row, choice in fills:
        found = np.flatnonzero(stale.ids[row] == stale.candidates[row, choice])
        total += float(stale.log_probs[row, found[0]]) if len(found) else -math.inf
    return math.exp(total / len(fills))
