"""``verify: exact`` is lossless: the exactness matrix, with a small model that knows nothing."""

import random
from dataclasses import replace
from itertools import product

import pytest
import torch

from decoders.options import DecodeOptions
from decoders.request import Request
from decoders.simsd.companion import SimSD
from decoders.simsd.small_model import SmallModel
from models.target import Target
from tests.conftest import tiny_model
from tests.reference.grid import (
    DTYPES,
    LENGTHS,
    LONGEST,
    RULES,
    STOP_IDS,
    TEMPERATURES,
    cut,
    model_of,
    reference,
)
from tests.reference.running import commits, outcome, prompt_of, run, with_stops

GAMMAS = (0, 1, 2, 4)


def exact(temperature: float, cap: float, confidence: str, gamma: int, **more: object):
    values = {"method": "simsd", "verify": "exact", "max_new_tokens": LONGEST}
    values |= {"temperature": temperature, "cap": cap, "confidence": confidence, "gamma": gamma}
    return DecodeOptions.model_validate(values | more)


@pytest.mark.parametrize(("dtype", "batch_size"), [*zip(DTYPES, (1, 4), strict=True)], ids=str)
def test_every_rule_length_and_stop_equals_standard(dtype: torch.dtype, batch_size: int) -> None:
    """All temperatures, rules, draft lengths and prompt lengths, shuffled into batches."""
    small = SmallModel(Target(tiny_model(dtype=dtype, seed=1)))
    grid = list(product(TEMPERATURES, RULES, GAMMAS, LENGTHS))
    random.Random(0).shuffle(grid)
    asked = []
    for index, (temperature, rule, gamma, length) in enumerate(grid[::13]):
        limit, ignore_stop = LONGEST - index % 4, index % 5 == 0
        more = {"max_new_tokens": limit, "ignore_stop": ignore_stop}
        options = exact(temperature, *rule, gamma, **more)
        request = Request(str(index), prompt_of(length), options, length)
        ids = reference(dtype, temperature, *rule, length).token_ids
        asked.append((request, cut(ids, limit, () if ignore_stop else STOP_IDS)))
    target = with_stops(model_of(dtype), STOP_IDS)
    results = run(target, [r for r, _ in asked], {"simsd": SimSD(small)}, batch_size)
    assert not [r for r, expected in asked if outcome(results[r.id]) != expected]


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_every_commit_is_the_targets_in_its_order(temperature: float) -> None:
    target, small = Target(model_of(torch.float64)), SmallModel(Target(tiny_model(seed=1)))
    for gamma, length in product(GAMMAS, (0, 3, 6)):
        options = exact(temperature, 1.0, "top1", gamma, ignore_stop=True)
        request = Request("a", prompt_of(length), options, length)
        drafted = run(target, [request], {"simsd": SimSD(small)})["a"]
        expected = reference(torch.float64, temperature, 1.0, "top1", length)
        assert commits(drafted) == list(expected.steps)


def test_the_target_as_its_own_drafter_needs_one_forward_a_block() -> None:
    """It drafts what it will commit, and it reads the text itself: even a block's first forward
    carries drafts."""
    model = model_of(torch.float64)
    for temperature, length in product((0.0, 1.0), (0, 8)):
        options = exact(temperature, 1.0, "top1", 0, ignore_stop=True, max_new_tokens=16)
        request = Request("a", prompt_of(length), options, 5)
        result = run(Target(model), [request], {"simsd": SimSD(SmallModel(Target(model)))})["a"]
        rounds = [(r.kind, r.drafts, r.accepted) for r in result.rounds if r.kind != "prefill"]
        assert rounds[:3] == [("verify", 3, 3)] * 3
        assert result.nfe == 4
        free = replace(request, options=options.draft_free())
        assert commits(result) == commits(run(Target(model), [free])["a"])
