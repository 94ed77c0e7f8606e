"""Requests share a prefix memory: what is warm, parked or short of room decodes as if alone."""

from collections.abc import Sequence
from functools import cache

import pytest
import torch

from decoders.auto_budget import AutoBudget
from decoders.cache_memory import CacheMemory, need_of
from decoders.cost_curve import CostCurve
from decoders.loop import Decoder
from decoders.options import DecodeOptions
from decoders.request import Request, Result
from models.cache import GROWTH
from models.opening import open_target
from models.target import Target
from tests.conftest import tiny_model, tiny_spec
from tests.reference.company import every_drafter, every_method, staggered, texts
from tests.reference.families import family_spec
from tests.reference.running import prompt_of, tiny_proposers

FREE = CostCurve(knots=(1, 65), prefixes=(0,), seconds=((1.0, 1.0),))
DTYPES = [torch.float64, torch.float32]
L = 4
COMMON = prompt_of(6 * L, salt=3)
"""Six whole blocks that all prompts begin with."""


def decoder_of(target: Target, tokens: int | None, dtype: torch.dtype = torch.float64) -> Decoder:
    memory = None if tokens is None else CacheMemory(target, tokens)
    auto = AutoBudget(lambda anew: FREE)
    return Decoder(target, every_drafter(dtype), auto=auto, memory=memory)


def requests() -> list[Request]:
    return every_method(13, COMMON)


@cache
def cold(dtype: torch.dtype) -> dict[str, Result]:
    """Each request alone, without a memory."""
    model, results = tiny_model(dtype=dtype), dict[str, Result]()
    for request in requests():
        results |= staggered(decoder_of(Target(model), None, dtype), [request])
    return results


def memory_of(decoder: Decoder) -> CacheMemory:
    assert decoder.memory is not None
    return decoder.memory


def prefills(result: Result) -> int:
    return sum(round.kind == "prefill" for round in result.rounds)


def check_equal(found: dict[str, Result], dtype: torch.dtype) -> None:
    """Outputs, and but for prefills what they took, are those of the cold requests."""
    assert texts(found) == texts(cold(dtype))
    for id, result in found.items():
        if result.request.options.budget != "auto":
            assert [r for r in result.rounds if r.kind != "prefill"] == [
                r for r in cold(dtype)[id].rounds if r.kind != "prefill"
            ]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_warm_prefix_changes_nothing_but_the_prefill(dtype: torch.dtype) -> None:
    target = Target(tiny_model(dtype=dtype))
    decoder = decoder_of(target, 4096, dtype)
    first = staggered(decoder, requests())
    check_equal(first, dtype)
    assert first["r0"].cache_hits == 0
    # From the second one on: also what a request under way has prefilled is there for others.
    assert all(first[f"r{i}"].cache_hits >= len(COMMON) for i in range(1, 12))
    again = staggered(decoder, requests())
    check_equal(again, dtype)
    for result in again.values():
        assert result.cache_hits == len(result.request.prompt_ids) // L * L
        assert prefills(result) == 0
        if result.request.options.budget != "auto":
            assert result.forwards == cold(dtype)[result.request.id].forwards - 1


def test_a_text_goes_on_from_the_answer_before_it() -> None:
    """The next turn of a conversation: prompt and answer of the one before are warm."""
    decoder = decoder_of(Target(tiny_model()), 4096)
    options = DecodeOptions(max_new_tokens=14, ignore_stop=True)
    first = staggered(decoder, [Request("a", COMMON, options)])["a"]
    prompt = (*COMMON, *first.token_ids, 5, 6, 7)
    second = staggered(decoder, [Request("b", prompt, options)])["b"]
    assert second.cache_hits == (len(COMMON) + len(first.token_ids)) // L * L
    alone = staggered(decoder_of(Target(tiny_model()), None), [Request("b", prompt, options)])["b"]
    assert second.token_ids == alone.token_ids


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("tokens", [None, 4096, 20 * GROWTH], ids=["none", "roomy", "short"])
def test_parked_requests_go_on_where_they_were(dtype: torch.dtype, tokens: int | None) -> None:
    """Every request is parked again and again, after another number of rounds each time."""
    decoder = decoder_of(Target(tiny_model(dtype=dtype)), tokens, dtype)
    for request in requests():
        decoder.add(request)
    parked, found, rounds = [], dict[str, Result](), 0
    while decoder.active or parked:
        found |= {result.request.id: result for result in decoder.step()}
        for sequence in parked:
            decoder.join(sequence)
        parked = [
            decoder.park(id) for id in list(decoder.active) if (rounds + int(id[1:])) % 5 == 0
        ]
        rounds += 1
    assert texts(found) == texts(cold(dtype))
    if tokens is None:
        assert sum(map(prefills, found.values())) > len(found)


class Measured(CacheMemory):
    """Looks at the target's own memory, whenever anything is kept or claimed."""

    most = 0

    def look(self) -> None:
        assert isinstance(self.target, Target)
        held = sum(cache.keys.shape[2] for cache in self.target.caches.values())
        kept = len(self.target.kept) * self.store.block_size
        assert self.kept == kept
        self.most = max(self.most, held + kept)

    def keep(self, slot: int, text: Sequence[int]) -> None:
        super().keep(slot, text)
        self.look()


@pytest.mark.parametrize("forwards", ["plain", "buckets"])
def test_the_target_never_holds_more_than_the_memory_has(forwards: str) -> None:
    target = open_target(tiny_model(), None, forwards)  # pyright: ignore[reportArgumentType]
    assert isinstance(target, Target)
    memory = Measured(target, 13 * GROWTH)
    decoder = Decoder(
        target,
        every_drafter(torch.float64),
        auto=AutoBudget(lambda anew: FREE),
        memory=memory,
    )
    for _ in range(2):
        found = staggered(decoder, requests())
        assert texts(found) == texts(cold(torch.float64))
    memory.look()
    assert 0 < memory.most <= memory.tokens
    assert not target.open_slots


class Failing(Target):
    """Finds no memory for the first copies that it is to keep."""

    fails = True

    def keep(self, slot: int, first: int, numbers: Sequence[int]) -> None:
        if self.fails:
            self.fails = False
            raise RuntimeError("out of memory")
        super().keep(slot, first, numbers)


def test_nobody_begins_with_blocks_that_could_not_be_copied() -> None:
    request = Request("a", COMMON, DecodeOptions(max_new_tokens=9))
    decoder = decoder_of(Failing(tiny_model()), 4096)
    with pytest.raises(RuntimeError, match="out of memory"):
        staggered(decoder, [request])
    decoder.remove("a")
    found = [staggered(decoder, [request])["a"] for _ in range(2)]
    assert [result.cache_hits for result in found] == [0, len(COMMON)]
    assert found[0].token_ids == found[1].token_ids


def test_a_shifted_prediction_begins_behind_a_computed_block() -> None:
    model = tiny_model(tiny_spec().model_copy(update={"prediction": "shifted"}))
    options = DecodeOptions(method="chain", budget=3, max_new_tokens=9)
    request = Request("a", COMMON, options)
    decoder = Decoder(Target(model), tiny_proposers())
    expected = staggered(decoder, [request])["a"]
    target = Target(model)
    decoder = Decoder(target, tiny_proposers(), memory=CacheMemory(target, 1024))
    for hits in (0, len(COMMON) - L):
        found = staggered(decoder, [request])["a"]
        assert found.token_ids == expected.token_ids
        assert found.cache_hits == hits
        assert prefills(found) == 1


def test_a_bidirectional_target_parks_too() -> None:
    target = open_target(tiny_model(family_spec("llada")))
    options = DecodeOptions(method="chain", budget=3, max_new_tokens=12)
    request = Request("a", COMMON, options)
    expected = staggered(Decoder(target, tiny_proposers()), [request])["a"]
    decoder = Decoder(target, tiny_proposers())
    decoder.add(request)
    found = []
    while not found:
        found = decoder.step()
        if not found:
            decoder.join(decoder.park("a"))
    assert found[0].token_ids == expected.token_ids


def test_a_request_that_never_fits_is_refused_with_numbers() -> None:
    decoder = decoder_of(Target(tiny_model()), 2 * GROWTH)
    options = DecodeOptions(max_new_tokens=128)
    with pytest.raises(ValueError, match=r"max_new_tokens 128 take up to 192 tokens .* are 128 "):
        decoder.add(Request("big", COMMON, options))
    assert not decoder.active
    decoder.add(Request("fits", COMMON, DecodeOptions(max_new_tokens=64)))


def test_what_a_request_may_take_bounds_what_it_takes() -> None:
    target = Target(tiny_model())
    decoder = decoder_of(target, 4096)
    for request in requests():
        decoder.add(request)
    while decoder.active:
        needs = {s.slot: need_of(s) for s in decoder.active.values()}
        decoder.step()
        for slot, cache_ in target.caches.items():
            assert cache_.keys.shape[2] <= needs[slot]
