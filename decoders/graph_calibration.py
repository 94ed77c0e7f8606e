"""Calibrating a draft graph: which nodes do recorded draft-free runs go through most often?"""

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
TRACES = 200
"""Traces of a folder that are looked at (Spiffy is content with about 50)."""
MAX_DEPTH = 24
"""Fills behind a root that are looked at."""


def calibrate_folders(folders: Sequence[Path], count: int = TRACES) -> GraphFile:
    """One graph for every folder of draft-free traces, told apart by their caps; of each folder
    ``count`` traces are looked at, spread evenly.

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
        recorded = len(store.recorded_ids())
        if not recorded:
            raise ValueError(f"traces {folder}: nothing is recorded there")
        wanted = set(
            np.linspace(0, recorded - 1, min(recorded, count)).round().astype(int).tolist()
        )
        traces = [trace for index, trace in enumerate(store.load()) if index in wanted]
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
    reached: dict[Node, int] = {}
    by_next: dict[Node, list[tuple[Node, ...]]] = {}
    for path in paths:
        by_next.setdefault(path[0], []).append(path)
    while by_next and len(reached) < size:
        node = min(by_next, key=lambda n: (-len(by_next[n]), len(n), n))
        reached[node] = 0
        for path in by_next.pop(node):
            # On from here, through what other paths had put into the graph before.
            depth = len(node) - 1
            while depth < len(path) and path[depth] in reached:
                reached[path[depth]] += 1
                depth += 1
            if depth < len(path):
                by_next.setdefault(path[depth], []).append(path)
    return DraftGraph(cap, tuple(reached), tuple(n / len(paths) for n in reached.values()))
