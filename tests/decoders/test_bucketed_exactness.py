"""Decoding by padded forwards commits, round by round, what plain forwards commit."""

import random

import pytest
import torch

from decoders.options import LOSSLESS
from decoders.request import Request
from models.opening import open_target
from tests.conftest import tiny_model
from tests.reference.families import family_spec
from tests.reference.grid import BUDGETS, LENGTHS, LONGEST, RULES, STOP_IDS, TEMPERATURES, draft
from tests.reference.running import outcome, prompt_of, run, tiny_proposers


def some_requests(count: int) -> list[Request]:
    """Of all methods, budgets, temperatures, rules and prompt lengths, some of each."""
    turns = random.Random(count)
    return [
        Request(
            str(index),
            prompt_of(turns.choice(LENGTHS)),
            draft(
                turns.choice(("threshold", *LOSSLESS)),
                turns.choice(BUDGETS),
                turns.choice(TEMPERATURES),
                *turns.choice(RULES),
                max_new_tokens=LONGEST - index % 4,
                ignore_stop=index % 5 == 0,
                cross_block=index % 2 == 0,
                draft_refresh=(0, 2, 4)[index % 3],
            ),
            index,
        )
        for index in range(count)
    ]


@pytest.mark.parametrize(
    ("family", "dtype", "batch_size", "count"),
    [
        ("sdar", torch.float64, 1, 12),
        ("sdar", torch.float64, 4, 40),
        ("sdar", torch.float32, 4, 40),
        ("sdar_moe", torch.float64, 3, 16),
        ("llada2_moe", torch.float64, 3, 16),
        ("Fast_dLLM_Qwen", torch.float64, 3, 16),
    ],
)
def test_padded_forwards_decode_as_plain_ones(
    family: str, dtype: torch.dtype, batch_size: int, count: int
) -> None:
    model, requests = tiny_model(family_spec(family), dtype), some_requests(count)
    found = []
    for forwards in ("plain", "buckets"):
        target = open_target(model, forwards=forwards)
        target.spec = target.spec.model_copy(update={"stop_token_ids": STOP_IDS})
        found.append(run(target, requests, tiny_proposers(), batch_size))
    plain, padded = found
    for id, result in plain.items():
        assert padded[id].rounds == result.rounds
        assert outcome(padded[id]) == outcome(result)
    reasons = {result.stop_reason for result in plain.values()}
    assert reasons == {"stop", "length"}
