"""Cross-block drafts and refresh never change an output, and their forwards are counted as made."""

from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest
import torch

from decoders.copies import arrange, copy_batch
from decoders.judge import judge
from decoders.loop import Decoder
from decoders.options import LOSSLESS, DecodeOptions
from decoders.request import Request, Result
from decoders.rules import Step
from decoders.sequence import Sequence
from decoders.stale import Stale
from decoders.state import State
from models.target import CopyBatch, Target
from tests.conftest import tiny_model, tiny_spec
from tests.reference.boundary import Ask, naive_rounds
from tests.reference.families import family_spec
from tests.reference.grid import (
    BLOCK,
    DTYPES,
    LENGTHS,
    LONGEST,
    RULES,
    STOP_IDS,
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
BOUNDARIES: list[dict[str, object]] = [
    {"cross_block": True},
    {"draft_refresh": 2},
    {"draft_refresh": BLOCK},
    {"cross_block": True, "draft_refresh": BLOCK - 1},
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_batches_of_mixed_requests_equal_standard(dtype: torch.dtype) -> None:
    """All methods, budgets, temperatures, rules, lengths and stops, a boundary for each in turn."""
    pairs = [
        (replace(request, options=request.options.model_copy(update=BOUNDARIES[i % 4])), expected)
        for i, (request, expected) in enumerate(list(mixed_requests(dtype))[::11])
    ]
    target = with_stops(model_of(dtype), STOP_IDS)
    results = run(target, [request for request, _ in pairs], PROPOSERS, batch_size=4)
    wrong = [r for r, expected in pairs if outcome(results[r.id]) != expected]
    assert not wrong
    for request, _ in pairs:
        assert_counted(results[request.id])


def assert_counted(result: Result) -> None:
    """What holds of every run's rounds, whatever its options."""
    for round in result.rounds:
        if round.kind != "prefill":
            assert len(round.steps) == round.accepted + 1
        assert round.drafts <= result.request.options.budget
        assert (round.drafts > 0) == (round.kind == "verify")
    positions = [position for step in commits(result) for position, _ in step]
    assert len(positions) == len(set(positions))
    blocks = [position // BLOCK for position in positions]
    assert all(a <= b for a, b in pairwise(blocks))


@pytest.mark.parametrize("boundary", BOUNDARIES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_alone_every_prompt_length_and_stop_position_equals_standard(
    dtype: torch.dtype, boundary: dict[str, object]
) -> None:
    for length in LENGTHS:
        temperature, method = (0.0, 1.0)[length % 2], ("chain", "order", "oracle-joint")[length % 3]
        cap, confidence = RULES[length % len(RULES)]
        ids = reference(dtype, temperature, cap, confidence, length).token_ids
        for position in range(length % 3, LONGEST + 1, 3):
            is_new = position < LONGEST and ids[position] not in ids[:position]
            stop_ids = ids[position : position + 1] if is_new else ()
            limit = LONGEST if is_new else position
            more = {"ignore_stop": False, "max_new_tokens": limit} | boundary
            options = draft(method, 8, temperature, cap, confidence, **more)
            target = with_stops(model_of(dtype), stop_ids)
            result = run_one(target, prompt_of(length), options, length, PROPOSERS)
            assert outcome(result) == (ids[:position], "stop" if is_new else "length")


@pytest.mark.parametrize("boundary", BOUNDARIES, ids=str)
@pytest.mark.parametrize("family", ["sdar_moe", "Fast_dLLM_Qwen"])
def test_other_block_causal_families_equal_standard(
    family: str, boundary: dict[str, object]
) -> None:
    """Experts; and predictions that begin with the hidden state of the token before the block."""
    target = Target(tiny_model(family_spec(family)))
    for length in (0, 3, 6):
        free = run_one(target, prompt_of(length), draft("standard", 0, 1.0, 0.9, "top1"), length)
        for method in ("chain", "oracle-joint"):
            options = draft(method, 8, 1.0, 0.9, "top1", **boundary)
            found = run_one(target, prompt_of(length), options, length, PROPOSERS)
            assert commits(found) == commits(free)


def test_without_coupling_the_next_block_draws_anew_too() -> None:
    target = Target(model_of(torch.float64))
    for boundary in BOUNDARIES:
        values = {"coupled": False, "max_new_tokens": 12}
        free = run_one(target, prompt_of(5), draft("standard", 0, 1.0, 1.0, "top1", **values), 5)
        options = draft("oracle-joint", 9, 1.0, 1.0, "top1", **values, **boundary)
        assert commits(run_one(target, prompt_of(5), options, 5, PROPOSERS)) == commits(free)


class Watched(Target):
    """A real target that writes down the copies of every forward, and which are stored."""

    def __init__(self) -> None:
        super().__init__(tiny_model())
        self.seen: list[str] = []

    def forward(self, batch: CopyBatch) -> torch.Tensor:
        self.seen.append(f"{len(batch.slots)} copies, {sum(batch.stores)} stored")
        return super().forward(batch)

    def adopt(self, slot: int, index: int) -> None:
        self.seen.append(f"adopts {index}")
        super().adopt(slot, index)


def decoded(target: Target, method: str, length: int, **values: object) -> Result:
    options = DecodeOptions.lenient(**({"method": method, "ignore_stop": True} | values))
    return run_one(target, prompt_of(length), options, length, PROPOSERS)


def test_an_accepted_crossing_saves_the_opening_forward() -> None:
    """The oracle knows the block: root, two drafts, the full one, the next block's masked copy."""
    target = Watched()
    result = decoded(target, "oracle-joint", 0, budget=4, cross_block=True, max_new_tokens=12)
    kinds = [round.kind for round in result.rounds]
    assert kinds == ["open", "verify", "verify", "verify"]
    assert [len(round.steps) for round in result.rounds] == [1, 4, 4, 3]
    crossing = ["5 copies, 0 stored", "adopts 0"]
    expected = ["1 copies, 0 stored", *crossing, *crossing, "3 copies, 0 stored"]
    assert target.seen[-len(expected) :] == expected
    apart = decoded(Watched(), "oracle-joint", 0, budget=4, max_new_tokens=12)
    assert [round.kind for round in apart.rounds] == ["open", "verify"] * 3
    assert result.token_ids == apart.token_ids


def test_without_room_for_both_copies_nothing_crosses() -> None:
    found = decoded(Watched(), "oracle-joint", 0, budget=3, cross_block=True, max_new_tokens=12)
    apart = decoded(Watched(), "oracle-joint", 0, budget=3, max_new_tokens=12)
    assert found.rounds[:2] == apart.rounds[:2]


def test_a_block_begins_with_drafts_behind_a_refresh() -> None:
    """Most blocks but the first have a distribution to draft from in their first forward, or need
    none, since the likeliest fill came true. (A forward that stores a block refreshes none.)"""
    saved = opened = blocks = 0
    for length in LENGTHS:
        result = decoded(
            Watched(), "chain", length, budget=8, draft_refresh=BLOCK, max_new_tokens=16
        )
        plain = decoded(Watched(), "chain", length, budget=8, max_new_tokens=16)
        assert result.token_ids == plain.token_ids
        kinds = [round.kind for round in result.rounds]
        opened += kinds.count("open") - 1
        blocks += [round.kind for round in plain.rounds].count("open") - 1
        saved += plain.nfe - result.nfe
    assert opened < blocks / 5
    assert saved > 0


def test_the_last_block_is_neither_refreshed_nor_crossed() -> None:
    for boundary in BOUNDARIES:
        target = Watched()
        result = decoded(target, "chain", 0, budget=8, max_new_tokens=BLOCK, **boundary)
        plain = decoded(Watched(), "chain", 0, budget=8, max_new_tokens=BLOCK)
        assert result.rounds == plain.rounds


@pytest.mark.parametrize("method", LOSSLESS)
def test_no_method_needs_more_forwards_for_crossing_when_the_budget_is_ample(method: str) -> None:
    """With room for everything, copies of the next block displace no draft."""
    target = Target(tiny_model(tiny_spec(4)))
    for length in (0, 2, 5):
        plain, crossing = (
            decoded(target, method, length, budget=200, cross_block=on, max_new_tokens=14)
            for on in (False, True)
        )
        assert crossing.token_ids == plain.token_ids
        assert crossing.nfe <= plain.nfe


def test_neighbours_change_nothing() -> None:
    requests = [
        Request(
            f"r{i}",
            prompt_of(i, i),
            draft(
                ("chain", "order")[i % 2], 7, (0.0, 1.0)[i // 4], 0.9, "top1", **BOUNDARIES[i % 4]
            ),
            i,
        )
        for i in range(8)
    ]
    target = Target(model_of(torch.float64))
    alone = run(target, requests, PROPOSERS)
    together = run(target, requests, PROPOSERS, batch_size=5)
    assert {i: r.rounds for i, r in together.items()} == {i: r.rounds for i, r in alone.items()}


def test_a_request_that_leaves_takes_what_was_offered_with_it() -> None:
    target = Target(model_of(torch.float64))
    decoder = Decoder(target, PROPOSERS)
    options = draft("chain", 8, 0.0, 1.0, "top1", cross_block=True, draft_refresh=BLOCK)
    decoder.add(Request("a", prompt_of(2), options))
    for _ in range(2):
        decoder.step()
    decoder.remove("a")
    assert not target.caches


def refused(options: DecodeOptions, family: str) -> str:
    decoder = Decoder(Target(tiny_model(family_spec("sdar"))), PROPOSERS)
    decoder.target.spec = family_spec(family)
    with pytest.raises(ValueError, match="bidirectional") as error:
        decoder.add(Request("a", (5,), options))
    return str(error.value)


def test_a_bidirectional_target_refuses_both_by_name() -> None:
    for boundary, said in zip(BOUNDARIES[:2], ("cross_block True", "draft_refresh 2"), strict=True):
        assert said in refused(draft("chain", 4, 0.0, 1.0, "top1", **boundary), "llada")


def asking(request: Request, target: Target) -> Ask:
    """Forwards of one copy each, behind a prefix that is prefilled anew."""

    @cache
    def ask(known: tuple[int, ...], state: State) -> tuple[Stale, Step]:
        alone = Sequence(replace(request, prompt_ids=known), 0, target.spec)
        target.open_slot(0)
        target.prefill(0, known)
        part = arrange([], state, None, opens=True, mask_id=target.spec.mask_token_id)
        batch, _ = copy_batch([0], [part], target.spec.mask_token_id)
        judged = judge(alone, len(known), [state], target.forward(batch).clone())
        target.close_slot(0)
        return judged.stale(0), judged.step(0)

    return ask


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("boundary", BOUNDARIES, ids=str)
def test_every_round_is_that_of_the_definition(
    boundary: dict[str, object], temperature: float
) -> None:
    target = Target(tiny_model(tiny_spec(6)))
    crossed = 0
    for length in (0, 9):
        for budget in (5, 11):
            more = {"max_new_tokens": 21} | boundary
            options = draft("chain", budget, temperature, 0.9, "top1", **more)
            request = Request("a", prompt_of(length), options, length)
            result = run(target, [request], PROPOSERS)["a"]
            made = [round for round in result.rounds if round.kind != "prefill"]
            assert made == naive_rounds(request, target.spec, asking(request, target))
            crossed += sum(len({p // 6 for s in r.steps for p, _ in s}) > 1 for r in made)
    assert crossed
