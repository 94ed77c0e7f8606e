"""Bidirectional targets with ``cache_refresh``: what is kept, where it is exact, what still holds.

Kept keys are those of a forward that saw less than the present one: approximate, but the same for
every method, so that drafts still change nothing.
"""

import random
from collections.abc import Iterator
from functools import cache

import pytest
import torch
from torch import Tensor

from decoders.options import LOSSLESS, DecodeOptions
from decoders.refusals import check_request
from decoders.replay import replay
from decoders.request import Request
from decoders.trace import TraceRecorder
from models.opening import open_target
from models.transformer import Attend, Transformer
from tests.conftest import tiny_model, tiny_spec
from tests.reference.decoding import naive_decode
from tests.reference.families import family_spec
from tests.reference.grid import BLOCK, LONGEST, RULES, draft
from tests.reference.kept import naive_kept_decode
from tests.reference.running import commits, outcome, prompt_of, run, tiny_proposers

FAMILIES = ["llada", "Dream"]
LENGTHS = [0, 1, 3, 4, 6]
NEVER = 100
"""Blocks that no text here has: the prompt's keys are never computed anew."""


@cache
def model_of(family: str, dtype: torch.dtype = torch.float64, layers: int = 2) -> Transformer:
    return tiny_model(family_spec(family).model_copy(update={"num_layers": layers}), dtype)


def request_of(length: int, refresh: int, **options: object) -> Request:
    values = {"ignore_stop": True, "max_new_tokens": LONGEST, "cache_refresh": refresh} | options
    return Request("0", prompt_of(length), DecodeOptions.lenient(**values), length)


@pytest.mark.parametrize("refresh", [1, 2, NEVER])
@pytest.mark.parametrize("family", FAMILIES)
def test_decoding_equals_the_naive_twin_commit_by_commit(family: str, refresh: int) -> None:
    model = model_of(family)
    for length in LENGTHS:
        cap, confidence = RULES[length % len(RULES)]
        for method in ("standard", "threshold"):
            request = request_of(
                length,
                refresh,
                method=method,
                tau=0.08,
                cap=cap,
                confidence=confidence,
                temperature=float(length % 2),
            )
            expected = naive_kept_decode(model, request.prompt_ids, request.options, length)
            result = run(open_target(model), [request])["0"]
            assert outcome(result) == (expected.token_ids, "length")
            assert commits(result) == list(expected.steps)


@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_exact_where_nothing_kept_can_be_stale(family: str) -> None:
    """In one layer keys know nothing but their token; refreshed in every block, blocks of a single
    forward (one position, or all positions at once) never read what an earlier forward left."""
    one_layer, deep = model_of(family, layers=1), model_of(family)
    single = tiny_model(family_spec(family, block_size=1))
    for length in LENGTHS:
        for model, refresh, method in (
            (one_layer, 1, "standard"),
            (one_layer, NEVER, "standard"),
            (single, 1, "standard"),
            (deep, 1, "threshold"),
        ):
            request = request_of(length, refresh, method=method, tau=0.0)
            exact = naive_decode(model, request.prompt_ids, request.options, length)
            result = run(open_target(model), [request])["0"]
            assert (outcome(result), commits(result)) == (
                (exact.token_ids, "length"),
                list(exact.steps),
            )


@pytest.mark.parametrize("family", FAMILIES)
def test_elsewhere_it_is_not_exact(family: str) -> None:
    model, differing = model_of(family), set()
    for refresh in (1, NEVER):
        for length in range(1, 5):
            pair = [request_of(length, r) for r in (0, refresh)]
            texts = {run(open_target(model), [request])["0"].token_ids for request in pair}
            differing |= {refresh} if len(texts) == 2 else set()
    assert differing == {1, NEVER}


@pytest.mark.parametrize(("dtype", "batch_size"), [(torch.float64, 1), (torch.float32, 4)], ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_lossless_method_equals_draft_free_with_the_same_cache(
    family: str, dtype: torch.dtype, batch_size: int
) -> None:
    model = model_of(family, dtype)
    settings = [
        (method, budget, refresh, length)
        for method in LOSSLESS
        for budget in (1, 4, 20)
        for refresh in (1, 2, NEVER)
        for length in LENGTHS
    ]
    random.Random(2).shuffle(settings)
    requests = []
    for index, (method, budget, refresh, length) in enumerate(settings[::15]):
        options = draft(
            method, budget, index % 2, *RULES[index % 4], cache_refresh=refresh, ignore_stop=True
        )
        requests.append(Request(str(index), prompt_of(length), options, length))
    free = [Request(r.id, r.prompt_ids, r.options.draft_free(), r.noise_seed) for r in requests]
    expected = run(open_target(model), free)
    found = run(open_target(model), requests, tiny_proposers(), batch_size)
    for request in requests:
        assert outcome(found[request.id]) == outcome(expected[request.id]), request
    assert sum(r.nfe for r in found.values()) < sum(r.nfe for r in expected.values())


class Counted(Transformer):
    """A real network that writes down how many positions each forward runs over."""

    def hidden(self, tokens: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        self.__dict__.setdefault("sizes", []).append(tuple(tokens.shape))
        return super().hidden(tokens, positions, attend)


def sizes_of(family: str, request: Request) -> list[tuple[int, ...]]:
    model = Counted(family_spec(family)).double().requires_grad_(False).eval()
    model.load_state_dict(model_of(family).state_dict())
    run(open_target(model), [request], tiny_proposers())
    return model.__dict__["sizes"]


def expected_sizes(prompt: int, blocks: int, refresh: int, shift: int) -> Iterator[tuple[int, int]]:
    """Of a standard run: forwards over the block, the masks behind it, and what is not kept."""
    whole = prompt + blocks * BLOCK
    for block in range(blocks):
        start = prompt + block * BLOCK
        whole_again = block % refresh == 0
        yield 1, whole if whole_again else whole - (start - BLOCK - shift)
        yield from [(1, whole - (start - shift))] * (BLOCK - 1)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("refresh", [1, 2, NEVER])
def test_kept_positions_are_not_computed_again(family: str, refresh: int) -> None:
    """Every second block of the middle setting begins with a forward over the whole text, the
    others with one over the block that has just become full, too."""
    shift = family == "Dream"
    request = request_of(7, refresh, max_new_tokens=4 * BLOCK)
    expected = list(expected_sizes(7, 4, refresh, shift))
    assert sizes_of(family, request) == expected
    exact = sizes_of(family, request_of(7, 0, max_new_tokens=4 * BLOCK))
    assert exact == [(1, 7 + 4 * BLOCK)] * (4 * BLOCK)
    assert sum(size for _, size in expected) < 0.75 * 4 * BLOCK * (7 + 4 * BLOCK)


def test_drafts_share_what_is_kept() -> None:
    """A forward over root and drafts runs over the block and the masks behind it, per copy."""
    request = request_of(7, NEVER, method="chain", budget=3, max_new_tokens=BLOCK)
    first, *others = sizes_of("llada", request)
    assert first == (1, 7 + BLOCK)
    assert {size for _, size in others} == {BLOCK}
    assert max(copies for copies, _ in others) > 1


@pytest.mark.parametrize("family", FAMILIES)
def test_replay_knows_the_rounds_if_its_setting_keeps_as_the_traces_did(family: str) -> None:
    model, proposers, recorder = model_of(family), tiny_proposers(), TraceRecorder()
    free = request_of(5, 2)
    result = run(open_target(model), [free], observer=recorder)["0"]
    trace = recorder.finish(result)
    for method in ("chain", "order"):
        drafted = request_of(5, 2, method=method, budget=6)
        live = run(open_target(model), [drafted], proposers)["0"]
        assert replay([trace], drafted.options, proposers[method])[0].rounds == live.rounds
        for other in (0, 1):
            options = request_of(5, other, method=method).options
            with pytest.raises(ValueError, match=r"decode\.cache_refresh .* recorded with 2"):
                replay([trace], options, proposers[method])


def test_only_bidirectional_targets_and_counted_budgets_take_it() -> None:
    with pytest.raises(ValueError, match=r"decode\.cache_refresh 2: .* valid: 0"):
        check_request(request_of(3, 2), tiny_spec())
    with pytest.raises(ValueError, match=r"decode\.budget auto: .*cache_refresh"):
        DecodeOptions(method="chain", budget="auto", cache_refresh=1)
    with pytest.raises(ValueError, match="cache_refresh"):
        DecodeOptions(cache_refresh=-1)
