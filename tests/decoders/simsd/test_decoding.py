"""Decoding under the temporal mask equals its naive twin round by round, in any company."""

import pytest
import torch

from decoders.companion import Companion
from decoders.options import DecodeOptions
from decoders.request import Request
from decoders.sequence import Sequence
from decoders.simsd.companion import SimSD, verification
from decoders.simsd.draft import BlockDraft
from decoders.simsd.small_model import SmallModel
from models.target import Target
from models.transformer import Transformer
from tests.conftest import tiny_model
from tests.reference.families import family_spec
from tests.reference.network import reference_logits
from tests.reference.running import prompt_of, run, tiny_proposers
from tests.reference.simsd import naive_simsd, slot_logits, states_behind

MODEL, SMALL = tiny_model(seed=0), tiny_model(seed=1)
MASK = MODEL.spec.mask_token_id


def companions(small: Transformer = SMALL) -> dict[str, Companion]:
    return {"simsd": SimSD(SmallModel(Target(small)))}


def simsd(**values: object) -> DecodeOptions:
    common = {"method": "simsd", "max_new_tokens": 11, "ignore_stop": True}
    return DecodeOptions.model_validate(common | values)


SETTINGS = [
    {},
    {"gamma": 1},
    {"gamma": 3, "confidence": "chosen"},
    {"order": "positional"},
    {"order": "positional", "gamma": 2, "cap": 0.3},
    {"rest": "target-argmax"},
    {"rest": "draft-argmax", "gamma": 3, "order": "positional"},
]


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_rounds_equal_the_naive_twin(setting: dict[str, object]) -> None:
    options = simsd(**setting)
    for length in (0, 3, 9):
        prompt = prompt_of(length)
        found = run(Target(MODEL), [Request("one", prompt, options)], companions())["one"]
        rounds = [(r.drafts, r.accepted, r.steps) for r in found.rounds if r.kind != "prefill"]
        twin = naive_simsd(MODEL, SMALL, prompt, options)
        assert rounds == [(r.drafts, r.accepted, r.steps) for r in twin], length


def test_a_pair_with_experts_equals_the_naive_twin() -> None:
    model, small = (tiny_model(family_spec("llada2_moe"), seed=seed) for seed in (0, 1))
    options, prompt = simsd(gamma=3), prompt_of(6)
    found = run(Target(model), [Request("one", prompt, options)], companions(small))["one"]
    rounds = [(r.drafts, r.accepted, r.steps) for r in found.rounds if r.kind != "prefill"]
    twin = naive_simsd(model, small, prompt, options)
    assert rounds == [(r.drafts, r.accepted, r.steps) for r in twin]


def test_requests_in_one_forward_do_not_see_each_other_nor_other_methods() -> None:
    requests = [
        Request(f"{index}", prompt_of(3 * index, index), simsd(temperature=t, **setting), index)
        for index, (setting, t) in enumerate(zip(SETTINGS, [0.0, 1.0, 0.7] * 3, strict=False))
    ]
    others = [
        Request(m, prompt_of(6), DecodeOptions.lenient(method=m, max_new_tokens=9))
        for m in ("standard", "chain")
    ]
    drafters = {**tiny_proposers(), **companions()}
    together = run(Target(MODEL), [*requests, *others], drafters, batch_size=5)
    for request in (*requests, *others):
        alone = run(Target(MODEL), [request], drafters)[request.id]
        assert together[request.id].rounds == alone.rounds
        assert together[request.id].token_ids == alone.token_ids


def test_every_round_is_one_forward_that_also_stores_the_block_before() -> None:
    for gamma in (0, 1, 3):
        options = simsd(gamma=gamma, max_new_tokens=16)
        result = run(Target(MODEL), [Request("a", prompt_of(6), options)], companions())["a"]
        kinds = [round.kind for round in result.rounds]
        assert kinds == ["prefill"] + ["verify"] * (len(kinds) - 1)
        assert result.nfe == len(kinds) - 1
        assert all(len(r.steps) >= 1 for r in result.rounds if r.kind == "verify")


def test_the_small_model_forwards_once_a_token_and_frees_what_it_held() -> None:
    small = SmallModel(Target(SMALL))
    result = run(Target(MODEL), [Request("a", prompt_of(6), simsd())], {"simsd": SimSD(small)})["a"]
    prefill = 1
    assert small.num_forwards == prefill + sum(round.drafts for round in result.rounds)
    assert not small.target.open_slots


def test_the_target_itself_as_the_drafter_of_one_layer_is_accepted_whole() -> None:
    """With one layer the mask is no approximation, so the target agrees with itself."""
    model = one_layer(MODEL)
    options = simsd(max_new_tokens=16)
    result = run(Target(model), [Request("a", prompt_of(8), options)], companions(model))["a"]
    assert [(r.drafts, r.accepted) for r in result.rounds if r.kind == "verify"] == [(4, 4)] * 4


def one_layer(model: Transformer) -> Transformer:
    """The target's first layer, with its head."""
    short = tiny_model(model.spec.model_copy(update={"num_layers": 1}), model.dtype)
    short.load_state_dict(model.state_dict(), strict=False)
    return short


@pytest.mark.parametrize("count", [2, 4])
def test_slots_of_one_layer_hold_exactly_the_states_that_they_stand_for(count: int) -> None:
    model, text, state = one_layer(MODEL), prompt_of(8), (MASK, 9, MASK, MASK)
    draft = dict([(3, 7), (0, 5), (2, 8)][: count - 1])
    rows = slot_logits(model, text, state, draft, apart=False)
    behind = states_behind(state, list(draft), list(draft.values()))
    for position, before in zip(draft, behind, strict=False):
        exact = reference_logits(model, (*text, *before))[8 + position]
        own = torch.tensor(rows[position], dtype=exact.dtype)
        keep = torch.arange(len(own)) != MASK
        torch.testing.assert_close(own[keep], exact[keep], rtol=0, atol=1e-12)


@pytest.mark.parametrize("copied", [True, False])
def test_the_rows_that_are_left_out_change_nothing(copied: bool) -> None:
    """The forward drops draft rows that no slot sees; the twin keeps the whole layout."""
    target, text, state = Target(MODEL), prompt_of(8), (MASK, 9, MASK, MASK)
    draft = BlockDraft((3, 0), (7, 5), (7, 5), (), lambda i: torch.empty(0))
    sequence = Sequence(Request("a", text, simsd()), 0, MODEL.spec)
    sequence.state = state
    target.open_slot(0)
    target.prefill(0, text)
    rows = slot_logits(MODEL, text, state, draft.fills, apart=not copied)
    asked = verification(sequence, draft, copied)
    assert len(asked.tokens) == len(state) + len(draft.positions)
    logits = target.forward_queries([asked]).clone()
    logits[:, MASK] = -torch.inf
    expected = torch.tensor([rows[p] for p in (3, 0, 2)], dtype=logits.dtype)
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-12)
