"""Where a text ends, and what never comes after."""

import pytest
import torch

from decoders.options import DecodeOptions
from models.target import Target
from tests.conftest import tiny_model, tiny_spec
from tests.reference.decoding import naive_decode
from tests.reference.running import (
    FIRST_TEXT_ID,
    commits,
    outcome,
    prompt_of,
    run_one,
    tiny_proposers,
    with_stops,
)

MODEL = tiny_model()
MASK = MODEL.spec.mask_token_id
PROPOSERS = tiny_proposers()
METHODS = ["standard", "threshold", "chain", "order"]


def options(method: str = "standard", **values: object) -> DecodeOptions:
    return DecodeOptions.lenient(method=method, budget=5, tau=0.08, **values)


def free_text(length: int, method: str = "standard", **values: object) -> tuple[int, ...]:
    """What comes out when nothing stops it: 12 tokens."""
    return run_one(
        Target(MODEL),
        prompt_of(length),
        options(method, **({"ignore_stop": True, "max_new_tokens": 12} | values)),
        length,
        PROPOSERS,
    ).token_ids


@pytest.mark.parametrize("method", METHODS)
def test_a_smaller_limit_gives_a_prefix(method: str) -> None:
    for length, temperature in [(0, 0.0), (3, 1.0), (5, 0.0)]:
        whole = free_text(length, method=method, temperature=temperature)
        for limit in range(12):
            found = free_text(length, method=method, temperature=temperature, max_new_tokens=limit)
            assert found == whole[:limit]


@pytest.mark.parametrize("method", METHODS)
def test_a_stop_id_ends_the_text_and_is_not_part_of_it(method: str) -> None:
    for length in (0, 7):
        whole = free_text(length, method=method)
        for position, token in enumerate(whole):
            if token in whole[:position]:
                continue
            target = with_stops(MODEL, (token, 999))
            opts = options(method, max_new_tokens=12)
            result = run_one(target, prompt_of(length), opts, length, PROPOSERS)
            assert outcome(result) == (whole[:position], "stop")
            ignored = opts.model_copy(update={"ignore_stop": True})
            result = run_one(target, prompt_of(length), ignored, length, PROPOSERS)
            assert outcome(result) == (whole, "length")


def test_a_stop_id_just_within_the_limit_stops_and_one_behind_it_does_not() -> None:
    whole = free_text(5)
    last = next(i for i in range(11, 0, -1) if whole[i] not in whole[:i])
    target = with_stops(MODEL, (whole[last],))
    for limit, reason in [(last + 1, "stop"), (last, "length")]:
        result = run_one(target, prompt_of(5), options(max_new_tokens=limit), 5)
        assert outcome(result) == (whole[:last], reason)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("length", [1, 4, 6, 7, 8])
def test_stop_ids_in_the_prompt_do_not_stop(method: str, length: int) -> None:
    prompt = (MODEL.spec.stop_token_ids * 4)[:length]
    whole = run_one(
        Target(MODEL), prompt, options(method, ignore_stop=True, max_new_tokens=6), 0, PROPOSERS
    )
    target = with_stops(MODEL, [t for t in (1, 2) if t not in whole.token_ids])
    result = run_one(target, prompt, options(method, max_new_tokens=6), 0, PROPOSERS)
    assert outcome(result) == (whole.token_ids, "length")
    assert len(result.token_ids) == 6


@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_forwarded_once_the_text_has_ended(method: str) -> None:
    """Every forward's state still had a masked position before the limit and the first stop id."""
    whole = free_text(5, method=method)
    for limit in range(1, 13):
        for stop_ids in ((), whole[3:4], whole[7:8]):
            result = run_one(
                with_stops(MODEL, stop_ids),
                prompt_of(5),
                options(method, max_new_tokens=limit),
                5,
                PROPOSERS,
            )
            filled = dict(enumerate(prompt_of(5)))
            for step in commits(result):
                text = [filled.get(p, MASK) for p in range(5, 5 + limit)]
                stops = [i for i, token in enumerate(text) if token in stop_ids]
                assert MASK in text[: stops[0] if stops else limit]
                filled |= dict(step)


@pytest.mark.parametrize("method", METHODS)
def test_masks_never_leak_even_when_the_network_wants_them(method: str) -> None:
    """The head's row of the mask token is made the loudest of all."""
    model = tiny_model(seed=5)
    with torch.no_grad():
        model.lm_head.weight[MASK] = 40 * model.lm_head.weight[FIRST_TEXT_ID]
    for temperature in (0.0, 2.0):
        for length in range(6):
            result = run_one(
                Target(model),
                prompt_of(length),
                options(method, temperature=temperature, max_new_tokens=9, ignore_stop=True),
                length,
                PROPOSERS,
            )
            assert len(result.token_ids) == 9
            assert MASK not in result.token_ids
            assert all(token != MASK for step in commits(result) for _, token in step)


def test_the_whole_block_is_decoded_beyond_the_limit_until_the_text_is_settled() -> None:
    """Commits go on behind the limit while something before it is masked, and not longer."""
    result = run_one(Target(MODEL), (), options(max_new_tokens=1, ignore_stop=True))
    positions = [position for step in commits(result) for position, _ in step]
    assert positions[-1] == 0
    assert len(positions) == len(set(positions))


@pytest.mark.parametrize("method", ["standard", "threshold"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_early_ends_equal_the_naive_twin(method: str, temperature: float) -> None:
    for length in range(10):
        opts = options(method, temperature=temperature, max_new_tokens=length % 7)
        model = tiny_model(tiny_spec(vocab_size=9), seed=2)
        prompt = prompt_of(length, vocab_size=9)
        expected = naive_decode(model, prompt, opts, length)
        result = run_one(Target(model), prompt, opts, length)
        assert outcome(result) == (expected.token_ids, expected.stop_reason)
        assert commits(result) == list(expected.steps)


@pytest.mark.parametrize("tau", [0.0, 0.05, 0.5, 0.99])
def test_threshold_equals_the_naive_twin(tau: float) -> None:
    for length in range(0, 10, 3):
        for confidence in ("top1", "chosen"):
            opts = DecodeOptions.model_validate(
                {
                    "method": "threshold",
                    "tau": tau,
                    "confidence": confidence,
                    "temperature": 0.7,
                    "top_k": 6,
                    "top_p": 0.9,
                    "max_new_tokens": 9,
                    "ignore_stop": True,
                }
            )
            expected = naive_decode(MODEL, prompt_of(length), opts, length)
            result = run_one(Target(MODEL), prompt_of(length), opts, length)
            assert outcome(result) == (expected.token_ids, expected.stop_reason)
            assert commits(result) == list(expected.steps)
