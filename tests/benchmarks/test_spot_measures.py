"""Measures of drafts and stale distributions, against slow twins and against real decoding."""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from benchmarks.spot.cells import Drafting
from benchmarks.spot.measures import (
    MASS_EDGES,
    Depth,
    Fate,
    candidate_ranks,
    coverage,
    depths,
    fates,
    forward_shapes,
    mass_bins,
)
from benchmarks.spot.replaying import Watched, round_fates
from decoders.options import LOSSLESS, DecodeOptions
from decoders.proposers.base import Draft
from decoders.proposers.oracle import OracleProposer
from decoders.replay import replay
from decoders.request import Request
from decoders.stale import TOP_CANDIDATES
from decoders.trace import Trace, TracedState, TraceRecorder
from models.target import CopyBatch, Target
from tests.conftest import tiny_model, tiny_spec
from tests.reference.running import prompt_of, run, tiny_proposers

MASK = 3
BLOCK = 8
FATES = st.builds(Fate, st.integers(1, 6), st.floats(0, 1), st.booleans())


@cache
def target() -> Target:
    return Target(tiny_model(tiny_spec(BLOCK)))


def requests_of(options: DecodeOptions) -> list[Request]:
    return [Request(str(n), prompt_of(3 * n), options, n) for n in range(4)]


@cache
def traces_of(temperature: float) -> tuple[Trace, ...]:
    requests = requests_of(DecodeOptions(temperature=temperature, max_new_tokens=19))
    recorder = TraceRecorder()
    results = run(target(), requests, observer=recorder)
    return tuple(recorder.finish(results[request.id]) for request in requests)


def slow_ranks(states: Sequence[TracedState], most: int) -> list[Counter[int]]:
    """Token by token: ranks of the commits made 1, 2, ... after each state's own."""
    found: list[Counter[int]] = [Counter() for _ in range(most)]
    for index, traced in enumerate(states):
        for ahead, later in enumerate(states[index + 1 :][:most]):
            ((position, token),) = later.step
            row = traced.stale.positions.tolist().index(position)
            candidates = traced.stale.candidates[row].tolist()
            rank = candidates.index(token) if token in candidates else TOP_CANDIDATES
            found[ahead][rank] += 1
    return found


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_ranks_among_stale_candidates_equal_a_search_token_by_token(temperature: float) -> None:
    counted = 0
    for trace in traces_of(temperature):
        for block in trace.blocks:
            fast = candidate_ranks(block.states, 5)
            slow = slow_ranks(block.states, 5)
            assert [dict(row) for row in slow] == [
                {rank: n for rank, n in enumerate(row) if n} for row in fast.tolist()
            ]
            counted += fast.sum()
    assert counted > 100


@given(st.lists(st.lists(st.integers(0, 9), min_size=9, max_size=9), min_size=1, max_size=6))
def test_coverage_is_the_share_of_all_tokens_up_to_k(rows: list[list[int]]) -> None:
    counts = np.array(rows)
    for t in (1, 2, 4, 8):
        for k, share in enumerate(coverage(counts, t), start=1):
            tokens = [rank for row in rows[:k] for rank, n in enumerate(row) for _ in range(n)]
            expected = sum(rank < t for rank in tokens) / len(tokens) if tokens else None
            assert share == expected


def test_a_draft_off_the_walk_is_not_accepted_though_the_target_reaches_it_later() -> None:
    """The walk stops where no draft is the next state: what lies behind was never verified."""
    root, first, second = (MASK, MASK, MASK), (5, MASK, MASK), (5, 6, MASK)
    other = (MASK, 6, MASK)
    drafts = [Draft(other, 0.5), Draft(second, 0.4)]
    assert fates(root, drafts, [first, second], MASK) == [Fate(1, 0.5, False), Fate(2, 0.4, False)]
    drafts = [Draft(first, 0.3), *drafts]
    assert [f.accepted for f in fates(root, drafts, [first, second], MASK)] == [True, False, True]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("method", LOSSLESS)
def test_accepted_fates_are_the_accepted_drafts_of_every_round(
    method: str, temperature: float
) -> None:
    traces = traces_of(temperature)
    proposer = tiny_proposers()[method]
    if isinstance(proposer, OracleProposer):
        proposer.futures.learn(traces)
    watched = Watched(proposer)
    options = Drafting(method, 6).over(traces[0].request.options)
    results = replay(traces, options, watched)
    asked = [r for result in results for r in result.rounds if r.kind in ("step", "verify")]
    found = round_fates(traces, watched.rounds)
    # Rounds of several traces interleave, so they are compared as multisets.
    accepted = [sorted(f.depth for f in fates if f.accepted) for fates in found]
    assert Counter((len(f), len(a)) for f, a in zip(found, accepted, strict=True)) == Counter(
        (r.drafts, r.accepted) for r in asked
    )
    assert all(depths == list(range(1, len(depths) + 1)) for depths in accepted)
    assert sum(map(len, accepted)) > 0


@given(st.lists(st.lists(FATES, max_size=5), max_size=5))
def test_depths_count_drafts_and_rounds(rounds: list[list[Fate]]) -> None:
    found = depths(rounds)
    for depth in range(1, 7):
        here = [[fate for fate in fates if fate.depth == depth] for fates in rounds]
        expected = Depth(
            sum(map(len, here)),
            sum(bool(fates) for fates in here),
            sum(any(fate.accepted for fate in fates) for fates in here),
        )
        assert found.get(depth, Depth()) == expected


@given(st.lists(FATES, max_size=40))
def test_every_draft_falls_into_the_bin_of_its_mass(found: list[Fate]) -> None:
    bins = mass_bins(found)
    last = len(MASS_EDGES) - 2
    for index, (low, high) in enumerate(pairwise(MASS_EDGES)):
        here = [f for f in found if low <= f.mass < high or (index == last and f.mass == high)]
        assert bins[index, 0] == len(here)
        assert bins[index, 1] == pytest.approx(sum(f.mass for f in here))
        assert bins[index, 2] == sum(f.accepted for f in here)


class Counting(Target):
    """A target that counts the copies of its forwards."""

    copies: Counter[int]

    def forward(self, batch: CopyBatch) -> Tensor:
        self.copies[len(batch.slots)] += 1
        return super().forward(batch)


@pytest.mark.parametrize("options", [{"method": "standard"}, {"method": "chain", "budget": 5}])
def test_forward_shapes_are_the_copies_that_the_target_sees(options: dict[str, object]) -> None:
    counting = Counting(tiny_model(tiny_spec(BLOCK)))
    counting.copies = Counter()
    common = {"max_new_tokens": 30, "ignore_stop": True}
    request = Request("a", prompt_of(2 * BLOCK + 3), DecodeOptions.model_validate(common | options))
    proposers = tiny_proposers() if options["method"] == "chain" else {}
    result = run(counting, [request], {k: v for k, v in proposers.items() if k == "chain"})["a"]
    shapes = forward_shapes(result.rounds, BLOCK)
    by_copies: Counter[int] = Counter()
    for (copies, _), count in shapes.items():
        by_copies[copies] += count
    assert by_copies == counting.copies
    assert {prefix for _, prefix in shapes} == {2 * BLOCK + BLOCK * n for n in range(5)}
    assert shapes.total() == result.nfe
