"""Calibrated graphs: what the target goes through most often, by rank, closed under prefixes."""

import json
from collections import Counter
from itertools import takewhile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoders.draft_graph import DraftGraph, GraphFile, Node, load_graphs, save_graphs
from decoders.graph_calibration import calibrate, paths_of
from decoders.options import DecodeOptions
from decoders.proposers.base import View
from decoders.proposers.graph import BUNDLED_GRAPH, GraphProposer, find_graph, instantiate
from decoders.replay import replay
from decoders.request import Request
from decoders.stale import TOP_CANDIDATES
from decoders.state import BlockEnd, State
from decoders.trace import TraceRecorder
from models.target import Target
from tests.conftest import tiny_model, tiny_spec
from tests.decoders.test_chain import MASK, stale_of, view_of
from tests.reference.running import prompt_of, run

STALE = stale_of([0, 1, 3, 4], [5, 6, 8, 9], [0.5, 0.9, 0.95, 0.8])
ROOT: State = (MASK, MASK, 7, 8, MASK)
"""Ranks among the root's masks: 1, 4, 0."""
A, B, C = (0, 0), (1, 0), (2, 0)


def graph(*nodes: Node) -> DraftGraph:
    return DraftGraph(1.0, nodes, tuple(0.5 for _ in nodes))


def view(end: BlockEnd | None = None, **values: float) -> View:
    return view_of(ROOT, STALE, end, method="graph", **values)


def test_ranks_become_the_stale_positions_and_candidates() -> None:
    drafts = instantiate(graph((A,), ((0, 1),), (A, B)), view())
    second = int(STALE.candidates[1, 1])
    assert [draft.state for draft in drafts] == [
        (MASK, 6, 7, 8, MASK),
        (MASK, second, 7, 8, MASK),
        (MASK, 6, 7, 8, 9),
    ]
    assert {draft.mass for draft in drafts} == {0.5}


def test_the_cap_decides_the_ranks() -> None:
    [draft] = instantiate(graph((A,)), view(cap=0.5))
    assert draft.state == (5, MASK, 7, 8, MASK)


def test_a_node_beyond_the_masks_or_finished_is_left_out() -> None:
    assert instantiate(graph(((3, 0),)), view()) == []
    assert len(instantiate(graph((A,), (A, B), (A, B, C)), view())) == 2
    limited = BlockEnd(MASK, 0, 2, (1,))
    # Without its finished parent (A, C), the node behind it is not reached.
    found = instantiate(graph((A,), (A, C), (A, B, C)), view(limited))
    assert [draft.state for draft in found] == [(MASK, 6, 7, 8, MASK)]


def test_a_budget_takes_the_first_nodes_that_exist() -> None:
    assert len(instantiate(graph((A,), (B,), (A, B)), view(budget=2))) == 2


def test_pruning_drops_improbable_nodes_and_what_hangs_on_them() -> None:
    whole = graph((A,), ((0, 1),), ((0, 1), B), (A, C))
    kept = [draft.state for draft in instantiate(whole, view(prune=0.6))]
    # The geometric mean of 0.9 and 0.5 is 0.67.
    assert kept == [(MASK, 6, 7, 8, MASK), (5, 6, 7, 8, MASK)]


PATHS = st.lists(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2)), max_size=5, unique_by=lambda f: f[0]),
    min_size=1,
    max_size=40,
).map(lambda paths: [tuple(tuple(sorted(p[: n + 1])) for n in range(len(p))) for p in paths])


@given(PATHS, st.integers(1, 12))
def test_every_prefix_of_a_calibration_is_closed_and_counts_what_it_saves(
    paths: list[tuple[Node, ...]], size: int
) -> None:
    found = calibrate(paths, 1.0, size)
    assert len(set(found.nodes)) == len(found.nodes) <= size
    known: set[Node] = {()}
    for node in found.nodes:
        assert node not in known
        assert any(tuple(f for f in node if f != last) in known for last in node)
        known.add(node)
    saved = [len(list(takewhile(known.__contains__, path))) for path in paths]
    total = sum(1 for path in paths if path)
    assert sum(found.reached) * total == pytest.approx(sum(saved))


def test_a_calibration_takes_what_is_met_most() -> None:
    paths = [((A,), (A, B))] * 3 + [((B,), (A, B))] * 2 + [((C,),)]
    found = calibrate(paths, 0.9, 3)
    assert found.cap == 0.9
    assert found.nodes == ((A,), (A, B), (B,))
    assert found.reached == pytest.approx((3 / 6, 5 / 6, 2 / 6)), "two ways lead to the second"


def test_traces_become_paths_of_ranks_and_a_graph_of_them_saves_forwards() -> None:
    options = DecodeOptions(max_new_tokens=24, ignore_stop=True)
    requests = [Request(str(n), prompt_of(n), options, n) for n in range(6)]
    recorder = TraceRecorder()
    results = run(Target(tiny_model(tiny_spec(8))), requests, batch_size=6, observer=recorder)
    traces = [recorder.finish(results[request.id]) for request in requests]
    paths = list(paths_of(traces))
    assert len(paths) == sum(len(block.states) - 1 for t in traces for block in t.blocks)
    lengths = Counter(map(len, paths))
    assert max(lengths) <= 6, "a root behind the first commit, and no draft fills the block"
    graphs = GraphFile((calibrate(paths, 1.0),), {})
    drafting = DecodeOptions(method="graph", budget=64, max_new_tokens=24, ignore_stop=True)
    replayed = replay(traces, drafting, GraphProposer(graphs))
    assert sum(r.nfe for r in replayed) < sum(t.nfe for t in traces)


def test_a_file_comes_back_as_it_was(tmp_path: Path) -> None:
    file = GraphFile((graph((A,), (A, B)), DraftGraph(0.9, ((B,),), (0.25,))), {"sources": ["x"]})
    save_graphs(file, tmp_path / "deep" / "graph.json")
    assert load_graphs(tmp_path / "deep" / "graph.json") == file


def test_the_nearest_cap_is_taken() -> None:
    graphs = GraphFile((graph((A,)), DraftGraph(0.9, ((B,),), (0.25,))), {})
    assert graphs.at(1.0).cap == 1.0
    assert graphs.at(0.8).cap == 0.9


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "other"}, "model_type 'other'"),
        ({"graphs": []}, "no graphs"),
        ({"graphs": [{"cap": 1}]}, "not a file of"),
        ({"graphs": [{"cap": "x", "nodes": [], "reached": []}]}, "graph.json: not a file of"),
        ({"graphs": [{"cap": 1, "nodes": [[[1, 0, 3]]], "reached": [1]}]}, "json: not a file of"),
        ({"graphs": [{"cap": 7, "nodes": [], "reached": []}]}, "cap 7.0 must be between"),
        ({"graphs": [{"cap": 1, "nodes": [[[0, 0]]], "reached": []}]}, "1 nodes and 0 values"),
        ({"graphs": [{"cap": 1, "nodes": [[[0, 0]]], "reached": [2]}]}, "reached 2.0 must be"),
        ({"graphs": [{"cap": 1, "nodes": [[[0, 0], [1, 0]]], "reached": [1]}]}, "is not reached"),
        (
            {"graphs": [{"cap": 1, "nodes": [[[0, TOP_CANDIDATES]]], "reached": [1]}]},
            "is not reached",
        ),
    ],
)
def test_a_file_that_is_no_graph_is_refused(tmp_path: Path, change: dict, said: str) -> None:
    path = tmp_path / "graph.json"
    save_graphs(GraphFile((graph((A,)),), {}), path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match=said):
        load_graphs(path)


def test_a_target_with_a_graph_of_its_own_uses_it(tmp_path: Path) -> None:
    assert find_graph(None, tmp_path) == BUNDLED_GRAPH
    (tmp_path / "graph.json").write_text("{}")
    assert find_graph(None, tmp_path) == tmp_path / "graph.json"
    assert find_graph("named.json", tmp_path) == Path("named.json")
    assert load_graphs(BUNDLED_GRAPH).at(0.9).cap == 0.9
