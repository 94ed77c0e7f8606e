"""Every lossless method equals draft-free decoding token by token, whatever it drafts.

The draft-free text comes from the naive twin (no cache, no batch): one run of 2L+1 tokens a
configuration. Since a text that stops earlier is a prefix of it, that one run also says what every
stop position and every smaller limit must give.
"""

import random
from collections.abc import Iterator, Sequence
from functools import cache

import pytest
import torch

from decoders.options import DecodeOptions
from decoders.proposers.base import Draft, Proposer, View
from decoders.request import Request
from decoders.state import fill, masked_positions
from models.target import Target
from models.transformer import Transformer
from tests.conftest import tiny_model, tiny_spec
from tests.reference.decoding import NaiveResult, naive_decode
from tests.reference.running import (
    commits,
    outcome,
    prompt_of,
    run,
    run_one,
    tiny_proposers,
    with_stops,
)

DTYPES = [torch.float64, torch.float32]
TEMPERATURES = [0.0, 0.7, 1.0, 2.0]
BUDGETS = [0, 1, 4, 8, 20]
BLOCK = 4
LONGEST = 2 * BLOCK + 1
LENGTHS = range(LONGEST + 1)
RULES = [(1.0, "top1"), (0.9, "top1"), (1.0, "chosen"), (0.9, "chosen")]
STOP_IDS = (5, 9, 14, 19)
"""Ids that the random target says now and then, so that texts stop in all places."""
PROPOSERS = tiny_proposers()


@cache
def model_of(dtype: torch.dtype) -> Transformer:
    return tiny_model(dtype=dtype)


@cache
def reference(
    dtype: torch.dtype, temperature: float, cap: float, confidence: str, length: int
) -> NaiveResult:
    """The draft-free text of 2L+1 tokens, stop ids ignored."""
    options = draft("standard", 0, temperature, cap, confidence)
    return naive_decode(model_of(dtype), prompt_of(length), options, seed=length)


def draft(
    method: str, budget: int, temperature: float, cap: float, confidence: str, **more: object
) -> DecodeOptions:
    values = {"ignore_stop": True, "max_new_tokens": LONGEST} | more
    return DecodeOptions.lenient(
        method=method,
        budget=budget,
        temperature=temperature,
        cap=cap,
        confidence=confidence,
        **values,
    )


def cut(ids: Sequence[int], limit: int, stop_ids: Sequence[int]) -> tuple[tuple[int, ...], str]:
    """What must come out when the text ends early."""
    for index, token in enumerate(ids[:limit]):
        if token in stop_ids:
            return tuple(ids[:index]), "stop"
    return tuple(ids[:limit]), "length"


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_standard_equals_the_naive_twin_commit_by_commit(
    dtype: torch.dtype, temperature: float
) -> None:
    target = Target(model_of(dtype))
    for cap, confidence in RULES if temperature else RULES[:2]:
        for length in LENGTHS:
            expected = reference(dtype, temperature, cap, confidence, length)
            options = draft("standard", 0, temperature, cap, confidence)
            result = run_one(target, prompt_of(length), options, seed=length)
            assert outcome(result) == (expected.token_ids, "length")
            assert commits(result) == list(expected.steps)


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_alone_every_prompt_length_and_stop_position_equals_standard(
    dtype: torch.dtype, temperature: float, budget: int
) -> None:
    """Stops at position p by a stop id where that token is new there, else by the limit."""
    by_stop_id = set()
    for method in ("chain", "order") if budget else ("chain",):
        for length in LENGTHS:
            cap, confidence = RULES[(length + budget) % len(RULES)]
            ids = reference(dtype, temperature, cap, confidence, length).token_ids
            for position in range(LONGEST + 1):
                is_new = position < LONGEST and ids[position] not in ids[:position]
                stop_ids = ids[position : position + 1] if is_new else ()
                limit = LONGEST if is_new else position
                options = draft(
                    method,
                    budget,
                    temperature,
                    cap,
                    confidence,
                    ignore_stop=False,
                    max_new_tokens=limit,
                )
                target = with_stops(model_of(dtype), stop_ids)
                result = run_one(target, prompt_of(length), options, length, PROPOSERS)
                expected = (ids[:position], "stop" if is_new else "length")
                assert outcome(result) == expected, (method, length, position)
                by_stop_id |= {position} if is_new else set()
    assert by_stop_id == set(range(LONGEST)), "a stop id was met at every position"


def mixed_requests(dtype: torch.dtype) -> Iterator[tuple[Request, tuple[tuple[int, ...], str]]]:
    """All methods, budgets, temperatures, rules and prompt lengths, with their outcomes."""
    settings = [
        (method, budget, temperature, *rule, length)
        for method in ("standard", "chain", "order")
        for budget in (BUDGETS[1:] if method != "standard" else BUDGETS[:1])
        for temperature in TEMPERATURES
        for rule in (RULES if temperature else RULES[:2])
        for length in LENGTHS
    ]
    random.Random(1).shuffle(settings)
    for index, (method, budget, temperature, cap, confidence, length) in enumerate(settings):
        limit, ignore_stop = (index * 7 + length) % (LONGEST + 1), index % 3 == 0
        options = draft(
            method,
            budget,
            temperature,
            cap,
            confidence,
            max_new_tokens=limit,
            ignore_stop=ignore_stop,
        )
        ids = reference(dtype, temperature, cap, confidence, length).token_ids
        stop_ids = () if ignore_stop else STOP_IDS
        request = Request(str(index), prompt_of(length), options, length)
        yield request, cut(ids, limit, stop_ids)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_batches_of_four_mixed_requests_equal_standard(dtype: torch.dtype) -> None:
    pairs = list(mixed_requests(dtype))
    target = with_stops(model_of(dtype), STOP_IDS)
    results = run(target, [request for request, _ in pairs], PROPOSERS, batch_size=4)
    wrong = [r for r, expected in pairs if outcome(results[r.id]) != expected]
    assert not wrong
    assert {len(ids) for _, (ids, reason) in pairs if reason == "stop"} == set(range(LONGEST))


@pytest.mark.parametrize("seed", range(3))
def test_gamma_hedge_and_the_drafters_weights_never_change_the_output(seed: int) -> None:
    dtype = torch.float64
    proposers = tiny_proposers(seed=seed + 10)
    for index, (gamma, hedge) in enumerate([(0.0, 0.0), (0.0, 1.0), (0.05, 0.6), (0.4, 1.0)]):
        for temperature in TEMPERATURES:
            cap, confidence = RULES[(index + seed) % 4]
            options = draft("order", 7, temperature, cap, confidence, gamma=gamma, hedge=hedge)
            for length in (0, 3, 5, 8):
                result = run_one(
                    Target(model_of(dtype)), prompt_of(length), options, length, proposers
                )
                expected = reference(dtype, temperature, cap, confidence, length).token_ids
                assert result.token_ids == expected


class RandomProposer:
    """Hypothetical states without any sense: right, wrong, contradicting the root, unordered."""

    def __init__(self, seed: int, truths: Sequence[dict[int, int]]) -> None:
        self.random = random.Random(seed)
        self.truths = truths

    def propose(self, views: Sequence[View]) -> list[list[Draft]]:
        return [self._drafts(view) for view in views]

    def _drafts(self, view: View) -> list[Draft]:
        found = {}
        for _ in range(self.random.randint(0, view.options.budget)):
            state = view.root
            for position in masked_positions(state, view.end.mask_id):
                if self.random.random() < 0.5:
                    token = self.random.choice(self.truths).get(position, 5)
                    state = fill(state, ((position, token),))
            if self.random.random() < 0.1:
                state = fill(state, ((self.random.randrange(len(state)), 6),))
            if not view.end.finished(state) and state != view.root:
                found[state] = Draft(state, self.random.random())
        return list(found.values())


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_output_cannot_depend_on_the_proposer(temperature: float) -> None:
    accepted = 0
    for length in LENGTHS:
        expected = reference(torch.float64, temperature, 1.0, "top1", length)
        truths = [
            {p % BLOCK: t for step in expected.steps[b : b + BLOCK] for p, t in step}
            for b in range(0, len(expected.steps), BLOCK)
        ]
        for seed in range(3):
            proposers: dict[str, Proposer] = {"chain": RandomProposer(seed, truths)}
            options = draft("chain", 12, temperature, 1.0, "top1")
            target = Target(model_of(torch.float64))
            result = run_one(target, prompt_of(length), options, length, proposers)
            assert result.token_ids == expected.token_ids
            assert commits(result) == list(expected.steps)
            accepted += sum(round.accepted for round in result.rounds)
    assert accepted > 30, "right drafts were among them"


WIDE = 32
WIDE_PROMPTS = (0, 1, 31, 33, 64)
ROWS = [(a, b, a + b, a + 2 * b, a + 3 * b, a + 4 * b) for a in range(5) for b in range(5)]
"""An orthogonal array: modulo 5, any two columns show all 25 pairs of values."""


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_blocks_of_32_equal_standard_pairwise(row: tuple[int, ...]) -> None:
    columns = [value % 5 for value in row]
    dtype, temperature = DTYPES[columns[0] % 2], TEMPERATURES[columns[1] % 4]
    budget, length = BUDGETS[columns[2]], WIDE_PROMPTS[columns[3]]
    cap, confidence = RULES[columns[4] % 4]
    method, batch_size = [("chain", 1), ("order", 1), ("chain", 3), ("order", 3)][columns[5] % 4]
    model = tiny_model(tiny_spec(WIDE, vocab_size=64), dtype, seed=3)
    options = draft(
        method, budget, temperature, cap, confidence, max_new_tokens=40, ignore_stop=False
    )
    requests = [
        Request(str(i), prompt_of(length + i, i, 64), options, noise_seed=i)
        for i in range(batch_size)
    ]
    results = run(Target(model), requests, PROPOSERS, batch_size)
    baseline = [Request(r.id, r.prompt_ids, options.draft_free(), r.noise_seed) for r in requests]
    alone = run(Target(model), baseline)
    for request in requests:
        assert outcome(results[request.id]) == outcome(alone[request.id])
        assert commits(results[request.id]) == commits(alone[request.id])
