"""Every family decodes as its definition says, and every lossless method equals draft-free decoding
on it: other attention, other prediction, other block grids, experts."""

import random
from functools import cache

import pytest
import torch

from decoders.options import LOSSLESS
from decoders.replay import replay
from decoders.request import Request
from decoders.trace import TraceRecorder
from models.opening import open_target
from models.transformer import Transformer
from tests.conftest import tiny_model
from tests.reference.decoding import naive_decode
from tests.reference.families import FAMILIES, family_spec
from tests.reference.grid import BLOCK, DTYPES, LENGTHS, LONGEST, RULES, STOP_IDS, cut, draft
from tests.reference.running import commits, outcome, prompt_of, run, tiny_proposers

OTHERS = [family for family in FAMILIES if family != "sdar"]  # which has the full matrix
TEMPERATURES = [0.0, 1.0]
BUDGETS = [1, 4, 20]


@cache
def model_of(family: str, dtype: torch.dtype) -> Transformer:
    return tiny_model(family_spec(family), dtype)


@cache
def alone(
    family: str, dtype: torch.dtype, temperature: float, rule: tuple[float, str], length: int
) -> tuple[int, ...]:
    """The draft-free text of 2L+1 tokens, stop ids ignored, one request at a time."""
    target = open_target(model_of(family, dtype))
    return run(target, [request_of(temperature, rule, length)])["0"].token_ids


def request_of(temperature: float, rule: tuple[float, str], length: int) -> Request:
    return Request("0", prompt_of(length), draft("standard", 0, temperature, *rule), length)


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("family", OTHERS)
def test_standard_equals_the_naive_twin_commit_by_commit(family: str, temperature: float) -> None:
    target = open_target(model_of(family, torch.float64))
    for length in LENGTHS:
        rule = RULES[length % len(RULES)]
        request = request_of(temperature, rule, length)
        model = model_of(family, torch.float64)
        expected = naive_decode(model, request.prompt_ids, request.options, seed=length)
        result = run(target, [request])["0"]
        assert outcome(result) == (expected.token_ids, "length"), length
        assert commits(result) == list(expected.steps)


@pytest.mark.parametrize("family", OTHERS)
def test_threshold_equals_the_naive_twin(family: str) -> None:
    target = open_target(model_of(family, torch.float64))
    for tau in (0.1, 0.5):
        for length in LENGTHS[::3]:
            options = draft("threshold", 0, 0.0, 1.0, "top1", tau=tau)
            expected = naive_decode(
                model_of(family, torch.float64), prompt_of(length), options, seed=length
            )
            result = run(target, [Request("0", prompt_of(length), options, length)])["0"]
            assert outcome(result) == (expected.token_ids, "length")
            assert commits(result) == list(expected.steps)


@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("family", OTHERS)
def test_every_lossless_method_equals_draft_free(
    family: str, dtype: torch.dtype, batch_size: int
) -> None:
    """In mixed batches, at every prompt length, with limits and stop ids in all places; a text that
    ends early is a prefix of the longer one, for bidirectional families with the same limit only:
    what they write depends on how many masks follow."""
    model = model_of(family, dtype)
    whole = model.spec.topology == "bidirectional"
    settings = [
        (method, budget, temperature, length)
        for method in LOSSLESS
        for budget in BUDGETS
        for temperature in TEMPERATURES
        for length in LENGTHS
    ]
    random.Random(1).shuffle(settings)
    requests, expected = [], {}
    for index, (method, budget, temperature, length) in enumerate(
        settings[:: 7 if batch_size == 1 else 5]
    ):
        rule = RULES[(index // 3) % len(RULES)]
        limit, ignore_stop = LONGEST - (0 if whole else index % 4), index % 3 == 0
        options = draft(
            method, budget, temperature, *rule, max_new_tokens=limit, ignore_stop=ignore_stop
        )
        ids = alone(family, dtype, temperature, rule, length)
        requests.append(Request(str(index), prompt_of(length), options, length))
        expected[str(index)] = cut(ids, limit, () if ignore_stop else STOP_IDS)
    stopping = model.spec.model_copy(update={"stop_token_ids": STOP_IDS})
    target = open_target(model)
    target.spec = stopping
    found = run(target, requests, tiny_proposers(), batch_size=batch_size)
    wrong = [id for id, result in found.items() if outcome(result) != expected[id]]
    assert not wrong
    assert any(reason == "stop" for _, reason in expected.values())


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("family", OTHERS)
def test_replay_counts_what_live_decoding_counts(family: str, temperature: float) -> None:
    """Round by round, prefills included, of which a bidirectional target has none."""
    target = open_target(model_of(family, torch.float64))
    free = [
        Request(
            str(length),
            prompt_of(length),
            draft("standard", 0, temperature, 1.0, "top1"),
            length,
        )
        for length in LENGTHS
    ]
    recorder = TraceRecorder()
    results = run(target, free, observer=recorder)
    traces = [recorder.finish(results[request.id]) for request in free]
    proposers = tiny_proposers()
    for method, budget in (("chain", 4), ("order", 4), ("order", 20)):
        options = draft(method, budget, temperature, 1.0, "top1")
        asked = [Request(r.id, r.prompt_ids, options, r.noise_seed) for r in free]
        live = run(target, asked, proposers)
        replayed = replay(traces, options, proposers[method])
        assert [r.rounds for r in replayed] == [live[r.id].rounds for r in asked]
        prefills = sum(round.kind == "prefill" for r in replayed for round in r.rounds)
        whole = target.spec.topology == "bidirectional"
        assert prefills == (0 if whole else sum(length >= BLOCK for length in LENGTHS))
