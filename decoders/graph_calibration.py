"""Calibrating a draft graph: which nodes do recorded draft-free runs go through most often?"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from decoders.draft_graph import DraftGraph, Fill, GraphFile, Node
from decoders.rules import commit_rank
from decoders.state import masked_positions
from decoders.trace import Trace, TracedBlock
from decoders.trace_store import TraceStore

MAX_NODES = 64
"""The largest budget that a calibration prepares."""
MAX_DEPTH = 24
"""Fills behind a root that are looked at."""


def calibrate_folders(folders: Sequence[Path]) -> GraphFile:
    """One graph for every folder of draft-free traces, told apart by their caps.

    Raises ``ValueError`` for traces of another rule than standard decoding, or of a cap twice.
    """
    graphs: dict[float, DraftGraph] = {}
    sources = []
    for folder in folders:
        store = TraceStore(folder)
        manifest = store.manifest()
        if manifest.rule["rule"] != "standard":
            raise ValueError(f"traces {folder}: rule {manifest.rule['rule']!r}; valid: standard")
        cap = float(manifest.rule["cap"])
        if cap in graphs:
            raise ValueError(f"traces {folder}: cap {cap:g} stands in an earlier folder too")
        traces = list(store.load())
        graphs[cap] = calibrate(paths_of(traces), cap)
        sources.append({"traces": len(traces)} | manifest.model_dump(exclude={"version"}))
    return GraphFile(tuple(graphs.values()), {"sources": sources})


def paths_of(traces: Iterable[Trace]) -> Iterator[tuple[Node, ...]]:
    """For every root of the traces: the nodes that the target goes through, one fill more each."""
    for trace in traces:
        for block in trace.blocks:
            for root in range(1, len(block.states)):
                yield _path(block, root, trace.request.options.cap)


def _path(block: TracedBlock, root: int, cap: float) -> tuple[Node, ...]:
    stale, state = block.states[root - 1].stale, block.states[root].state
    masked = set(masked_positions(state, block.end.mask_id))
    order = [i for i in commit_rank(stale.rank_log_odds, cap) if int(stale.positions[i]) in masked]
    rank_of = {int(stale.positions[i]): rank for rank, i in enumerate(order)}
    row_of = {int(stale.positions[i]): int(i) for i in order}
    fills: list[Fill] = []
    path: list[Node] = []
    # The last state's step finishes the block: that state is never drafted.
    for traced in block.states[root : min(len(block.states) - 1, root + MAX_DEPTH)]:
        ((position, token),) = traced.step
        found = np.flatnonzero(stale.candidates[row_of[position]] == token)
        if not len(found):
            break
        fills.append((rank_of[position], int(found[0])))
        path.append(tuple(sorted(fills)))
    return tuple(path)


def calibrate(paths: Iterable[tuple[Node, ...]], cap: float, size: int = MAX_NODES) -> DraftGraph:
    """The graph that the most paths go through, grown one node at a time.

    A path counts for its next node only while all nodes before it are in the graph, since a draft
    is reached through drafts. Ties go to the smaller node.
    """
    paths = [path for path in paths if path]
    depth = [0] * len(paths)
    waiting = Counter(path[0] for path in paths)
    by_next: dict[Node, list[int]] = {}
    for index, path in enumerate(paths):
        by_next.setdefault(path[0], []).append(index)
    nodes: list[Node] = []
    reached: list[float] = []
    while waiting and len(nodes) < size:
        node = min(waiting, key=lambda n: (-waiting[n], len(n), n))
        del waiting[node]
        going = by_next.pop(node)
        nodes.append(node)
        reached.append(len(going) / len(paths))
        for index in going:
            depth[index] += 1
            if depth[index] < len(paths[index]):
                following = paths[index][depth[index]]
                waiting[following] += 1
                by_next.setdefault(following, []).append(index)
    return DraftGraph(cap, tuple(nodes), tuple(reached))
