"""Tallies: parts add up to the whole, prices are sums over forwards."""

import json

import pytest

from benchmarks.spot.cells import Drafting
from benchmarks.spot.replaying import draft_free_tally, replay_tally
from benchmarks.spot.tally import Tally, merge
from decoders.options import DecodeOptions
from decoders.request import Request
from decoders.trace import Trace, TraceRecorder
from models.target import Target
from tests.conftest import tiny_model
from tests.reference.running import prompt_of, run, tiny_proposers

SETTINGS = [Drafting("chain", 3), Drafting("order", 8, 0.05), Drafting("oracle-joint", 2)]


@pytest.fixture(scope="module")
def traces() -> list[Trace]:
    options = DecodeOptions(max_new_tokens=11)
    requests = [Request(str(n), prompt_of(2 * n), options, n) for n in range(5)]
    recorder = TraceRecorder()
    results = run(Target(tiny_model()), requests, observer=recorder)
    return [recorder.finish(results[request.id]) for request in requests]


@pytest.mark.parametrize("drafting", SETTINGS, ids=lambda d: d.label)
def test_tallies_of_parts_merge_to_that_of_the_whole(
    traces: list[Trace], drafting: Drafting
) -> None:
    def part(some: list[Trace]) -> Tally:
        return replay_tally(some, drafting, tiny_proposers()[drafting.method])

    whole, merged = part(traces), merge([part(traces[:2]), part(traces[2:])])
    assert merged.model_copy(update={"masses": whole.masses}) == whole
    for ours, theirs in zip(merged.masses, whole.masses, strict=True):
        assert ours == pytest.approx(theirs)
    assert Tally.model_validate(json.loads(json.dumps(whole.model_dump()))) == whole
    assert whole.nfe < draft_free_tally(traces).nfe


def test_a_tally_counts_as_the_traces_and_their_forwards_do(traces: list[Trace]) -> None:
    free = draft_free_tally(traces)
    assert [(p.id, p.nfe) for p in free.problems] == [(t.request.id, t.nfe) for t in traces]
    assert free.cost(lambda copies, prefix: 1.0) == free.nfe
    assert (free.drafts_per_round, free.accepted_per_round) == (0, 0)
    # Every block but a request's first is opened by a forward that stores the one before it.
    stored = sum(len(trace.blocks) - 1 for trace in traces)
    assert free.cost(lambda copies, prefix: copies) == free.nfe + stored


def test_the_first_problems_alone(traces: list[Trace]) -> None:
    free = draft_free_tally(traces)
    assert free.first(["1", "0"]).nfe == traces[0].nfe + traces[1].nfe


def test_nothing_merges_to_nothing() -> None:
    assert merge([]) == Tally()
