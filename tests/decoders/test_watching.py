"""A watched request decodes as ever, and what is seen of it is what happened."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoders.companion import Companion
from decoders.loop import Decoder
from decoders.options import DecodeOptions
from decoders.proposers.base import Place, Proposer
from decoders.request import Request, Result
from decoders.sight import DraftNode, SeenRound
from decoders.simsd.companion import SimSD
from decoders.simsd.small_model import SmallModel
from decoders.trace import TraceRecorder
from decoders.watching import find_parents, new_rounds
from models.target import Target
from tests.conftest import tiny_model, tiny_spec
from tests.reference.running import (
    commits,
    foresee,
    prompt_of,
    run,
    tiny_proposers,
    tiny_sets_proposer,
)

MASK = tiny_spec().mask_token_id
PROPOSERS: dict[str, Proposer] = {**tiny_proposers(), "sets": tiny_sets_proposer()}
LONG = {"max_new_tokens": 22, "ignore_stop": True}
CASES: list[dict[str, object]] = [
    {"method": "standard"},
    {"method": "threshold", "tau": 0.05},
    {"method": "threshold", "tau": 0.05, "edit_tau": 0.1},
    {"method": "chain", "budget": 4, "cap": 0.05, "confidence": "chosen"},
    {"method": "wtree", "budget": 6, "temperature": 1.0},
    {"method": "order", "budget": 12, "hedge": 1.0},
    {"method": "oracle-joint", "budget": 5},
    {"method": "sets", "budget": 6, "tau": 0.05},
    {"method": "sets", "budget": 6, "tau": 0.05, "rule": "product"},
    {"method": "chain", "budget": "auto"},
]
ACROSS: list[dict[str, object]] = [
    {"cross_block": True},
    {"draft_refresh": 8},
    {"cross_block": True, "draft_refresh": 3},
]


@pytest.fixture(scope="module")
def target() -> Target:
    return Target(tiny_model(tiny_spec(block_size=8)))


def watch(
    target: Target,
    values: Mapping[str, object],
    proposers: Mapping[str, Proposer | Companion] = PROPOSERS,
) -> tuple[Result, list[SeenRound]]:
    """A watched request's result, and what was seen of it round by round."""
    options = DecodeOptions.model_validate(LONG | dict(values))
    request = Request("one", prompt_of(11), options, noise_seed=3, watched=True)
    foresee(target, [request], PROPOSERS)
    decoder = Decoder(target, proposers)
    sequence = decoder.add(request)
    seen: list[SeenRound] = []
    while True:
        results = decoder.step()
        seen += new_rounds(sequence, len(seen))
        if results:
            assert not sequence.sights, "everything was handed over"
            return results[0], seen


def path_of(tree: Sequence[DraftNode]) -> list[DraftNode]:
    """The accepted nodes from the root on; asserts that they are one path."""
    path: list[DraftNode] = []
    above: int | None = None
    while True:
        following = [i for i, node in enumerate(tree) if node.accepted and node.parent == above]
        assert len(following) <= 1
        if not following:
            assert len(path) == sum(node.accepted for node in tree)
            return path
        above = following[0]
        path.append(tree[above])


@pytest.mark.parametrize("values", CASES + [{"method": "chain"} | across for across in ACROSS])
def test_watching_changes_no_round_and_sees_them_all(
    target: Target, values: dict[str, object]
) -> None:
    result, seen = watch(target, values)
    plain = run(target, [replace(result.request, watched=False)], PROPOSERS)["one"]
    if values.get("budget") != "auto":  # it depends on the clock
        assert result.rounds == plain.rounds
    assert tuple(each.round for each in seen) == result.rounds
    assert [each.seconds for each in seen] == sorted(each.seconds for each in seen)
    for each in seen:
        assert (each.sight is None) == (each.round.kind == "prefill")


@pytest.mark.parametrize("values", CASES)
def test_accepted_drafts_are_one_path_whose_fills_were_committed(
    target: Target, values: dict[str, object]
) -> None:
    _, seen = watch(target, values)
    for each in seen:
        if each.sight is None:
            continue
        path = path_of(each.sight.tree)
        assert len(each.sight.tree) == each.round.drafts
        assert len(path) == each.round.accepted
        for node, step in zip(path, each.round.steps, strict=False):
            assert node.fills == step
        masses = [node.mass for node in each.sight.tree]
        assert all(mass is not None and 0 <= mass <= 1 + 1e-9 for mass in masses)


@pytest.mark.parametrize("across", ACROSS, ids=str)
@pytest.mark.parametrize("method", ["chain", "order", "oracle-joint"])
def test_behind_a_full_draft_the_next_block_hangs_in_the_same_tree(
    target: Target, method: str, across: dict[str, object]
) -> None:
    _, seen = watch(target, {"method": method, "budget": 10} | across)
    crossed = 0
    for each in seen:
        if each.sight is None:
            continue
        tree = each.sight.tree
        assert len(tree) == each.round.drafts
        path_of(tree)
        for node in tree:
            blocks = {position // 8 for position, _ in node.fills}
            parent = None if node.parent is None else tree[node.parent]
            crossed += not node.fills
            if not node.fills:
                assert parent is not None
            elif parent is not None and parent.fills:
                assert min(blocks) - max(p // 8 for p, _ in parent.fills) in (0, 1)
    assert crossed, "some masked copy rode along"


@pytest.mark.parametrize(
    "values",
    [
        {"method": "standard"},
        {"method": "order", "budget": 8},
        {"method": "chain", "budget": 8, "cross_block": True},
        {"method": "oracle-joint", "budget": 8, "temperature": 1.0, "confidence": "chosen"},
        {"method": "sets", "budget": 6, "tau": 0.05},
    ],
    ids=str,
)
def test_confidences_are_those_of_the_draft_free_trace(
    target: Target, values: dict[str, object]
) -> None:
    result, seen = watch(target, values)
    recorder = TraceRecorder()
    free = replace(result.request, options=result.request.options.draft_free(), watched=False)
    trace = recorder.finish(run(target, [free], observer=recorder)["one"])
    expected = []
    for state in (state for block in trace.blocks for state in block.states):
        told = dict(zip(state.stale.positions, state.stale.rank_log_odds, strict=True))
        expected.append([1 / (1 + math.exp(-told[position])) for position, _ in state.step])
    found = [step for each in seen if each.sight for step in each.sight.confidences]
    assert len(found) == len(expected) == len(commits(result))
    for ours, theirs in zip(found, expected, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-5)


@pytest.mark.parametrize("verify", ["exact", "mask"])
def test_a_small_models_drafts_are_a_chain_as_exact_states_and_unseen_under_the_mask(
    target: Target, verify: str
) -> None:
    small = SmallModel(Target(tiny_model(tiny_spec(block_size=8), seed=1)))
    result, seen = watch(target, {"method": "simsd", "verify": verify}, {"simsd": SimSD(small)})
    assert tuple(each.round for each in seen) == result.rounds
    sights = [each.sight for each in seen if each.round.kind == "verify"]
    assert sights
    for sight in sights:
        assert (sight is None) == (verify == "mask")
        if sight is not None:
            expected = [None, *range(len(sight.tree) - 1)]
            assert [node.parent for node in sight.tree] == expected
            assert {node.mass for node in sight.tree} <= {None}


def test_an_opening_that_an_earlier_forward_told_has_no_confidence(target: Target) -> None:
    _, seen = watch(target, {"method": "oracle-joint", "budget": 4, "draft_refresh": 4})
    sights = [each for each in seen if each.sight is not None]
    told = [step for each in sights if each.sight for step in each.sight.confidences]
    assert [len(each.round.steps) for each in sights] == [
        len(each.sight.confidences) for each in sights if each.sight
    ]
    assert any(step == (None,) for step in told)


def test_a_state_of_several_orders_hangs_behind_the_one_the_target_came_by() -> None:
    a, b, both = (5, MASK), (MASK, 6), (5, 6)
    places: list[Place] = [(None, a), (None, b), (None, both)]
    assert find_parents(places, set(), MASK) == [None, None, 0]
    assert find_parents(places, {(None, b), (None, both)}, MASK) == [None, None, 1]
    assert find_parents(places, {(None, b)}, MASK) == [None, None, 0]


places_of = st.lists(
    st.tuples(st.none(), st.tuples(*[st.sampled_from((MASK, 4, 5))] * 4)), unique=True, max_size=12
)


@given(places_of, st.data())
def test_parents_are_those_of_a_search_through_all_pairs(
    places: list[Place], data: st.DataObject
) -> None:
    reached = set(data.draw(st.lists(st.sampled_from(places), unique=True)) if places else [])
    assert find_parents(places, reached, MASK) == [
        slow_parent(place, places, reached) for place in places
    ]


def slow_parent(place: Place, places: list[Place], reached: set[Place]) -> int | None:
    """The same, by looking at every pair in turn."""
    best: tuple[bool, int, int] | None = None
    for index, other in enumerate(places):
        pairs = list(zip(other[1], place[1], strict=True))
        if other == place or any(a not in (MASK, b) for a, b in pairs):
            continue
        rank = (place in reached and other in reached, -other[1].count(MASK), -index)
        best = rank if best is None else max(best, rank)
    return None if best is None else -best[2]
