"""Every lossless method equals draft-free decoding token by token: the full product at L = 4."""

import pytest
import torch

from decoders.options import LOSSLESS
from models.target import Target
from tests.reference.grid import (
    BUDGETS,
    DTYPES,
    LENGTHS,
    LONGEST,
    RULES,
    STOP_IDS,
    TEMPERATURES,
    draft,
    mixed_requests,
    model_of,
    reference,
)
from tests.reference.running import (
    commits,
    outcome,
    prompt_of,
    run,
    run_one,
    tiny_proposers,
    with_stops,
)

PROPOSERS = tiny_proposers()


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


OTHERS = [method for method in LOSSLESS if method not in ("chain", "order")]


def methods_of(budget: int, temperature: float, length: int) -> tuple[str, ...]:
    """Chain and order everywhere, the others in turn (all of them at every point: the batches).

    Without a budget all are draft-free, and a chain of four positions has three drafts: its runs at
    larger budgets are one run (next test).
    """
    turn = BUDGETS.index(budget) + TEMPERATURES.index(temperature) + length
    other = OTHERS[turn // 3 % len(OTHERS)] if turn % 3 == 0 else "order"
    return {0: ("chain",), 8: (other,), 20: ("order",)}.get(budget, ("chain", other))


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_a_chain_as_long_as_the_block_ignores_further_budget(temperature: float) -> None:
    target = Target(model_of(torch.float64))
    for length in LENGTHS:
        expected = reference(torch.float64, temperature, 0.9, "top1", length).token_ids
        runs = [
            run_one(
                target,
                prompt_of(length),
                draft("chain", budget, temperature, 0.9, "top1"),
                length,
                PROPOSERS,
            )
            for budget in (4, 8, 20)
        ]
        assert runs[0].rounds == runs[1].rounds == runs[2].rounds
        assert {result.token_ids for result in runs} == {expected}


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_alone_every_prompt_length_and_stop_position_equals_standard(
    dtype: torch.dtype, temperature: float, budget: int
) -> None:
    """Stops at position p by a stop id where that token is new there, else by the limit."""
    by_stop_id = set()
    for length in LENGTHS:
        for method in methods_of(budget, temperature, length):
            cap, confidence = RULES[(length + BUDGETS.index(budget)) % len(RULES)]
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


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_batches_of_four_mixed_requests_equal_standard(dtype: torch.dtype) -> None:
    pairs = list(mixed_requests(dtype))
    target = with_stops(model_of(dtype), STOP_IDS)
    results = run(target, [request for request, _ in pairs], PROPOSERS, batch_size=4)
    wrong = [r for r, expected in pairs if outcome(results[r.id]) != expected]
    assert not wrong
    assert {len(ids) for _, (ids, reason) in pairs if reason == "stop"} == set(range(LONGEST))
