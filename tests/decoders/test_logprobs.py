"""Log-probabilities of committed tokens are those of the state that each was committed from."""

import math

import pytest
import torch

from decoders.logprobs import read_logprobs
from decoders.loop import Decoder
from decoders.options import DecodeOptions
from decoders.request import Request, TokenLogprob
from decoders.sequence import Sequence
from decoders.simsd.companion import SimSD
from decoders.simsd.small_model import SmallModel
from models.target import Target
from tests.conftest import tiny_model
from tests.reference.decoding import log_sum_exp
from tests.reference.network import reference_logits
from tests.reference.running import (
    commits,
    prompt_of,
    tiny_proposers,
    tiny_sets_proposer,
)

MODEL = tiny_model()
MASK, BLOCK = MODEL.spec.mask_token_id, MODEL.spec.block_size
LIMIT, TOP = 11, 3
PROPOSERS = {
    **tiny_proposers(),
    "sets": tiny_sets_proposer(),
    "simsd": SimSD(SmallModel(Target(tiny_model(seed=1)))),
}

SETTINGS: list[dict[str, object]] = [
    {"method": "standard"},
    {"method": "standard", "temperature": 1.0, "top_k": 5, "confidence": "chosen"},
    {"method": "threshold", "tau": 0.1},
    {"method": "threshold", "tau": 0.1, "edit_tau": 0.08},
    {"method": "chain", "budget": 6},
    {"method": "order", "budget": 8, "cross_block": True, "temperature": 0.7},
    {"method": "wtree", "budget": 8, "cross_block": True, "draft_refresh": 3},
    {"method": "sets", "budget": 8, "rule": "product", "tau": 0.1},
]


def decoded(top: int | None, length: int, **values: object) -> Sequence:
    """The finished sequence of one request."""
    common = {"max_new_tokens": LIMIT, "ignore_stop": True}
    options = DecodeOptions.model_validate(common | values)
    decoder = Decoder(Target(MODEL), PROPOSERS)
    sequence = decoder.add(Request("one", prompt_of(length), options, length, top_logprobs=top))
    while not decoder.step():
        pass
    return sequence


def naive_logprobs(length: int, sequence: Sequence) -> list[list[float]]:
    """Each generated token's log-probabilities, over the vocabulary: the steps once more, each
    with a forward over everything."""
    tokens, said = list(prompt_of(length)), {}
    for step in commits(sequence.result()):
        behind = max(position for position, _ in step) + 1 if step else 0
        tokens += [MASK] * (-(-max(behind, len(tokens)) // BLOCK) * BLOCK - len(tokens))
        logits = reference_logits(MODEL, tokens)
        logits[:, MASK] = -math.inf
        if set(tokens) == {MASK}:
            logits[:] = logits[0].clone()
        for position, _ in step:
            row = logits[position].tolist()
            total = log_sum_exp(row)
            said[position] = [value - total for value in row]
        for position, token in step:
            tokens[position] = token
    return [said[length + number] for number in range(len(sequence.result().token_ids))]


@pytest.mark.parametrize("length", [0, 6])
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_they_equal_those_of_a_forward_over_everything(
    setting: dict[str, object], length: int
) -> None:
    sequence = decoded(TOP, length, **setting)
    ids = sequence.result().token_ids
    found = sequence.logprobs(0, len(ids))
    assert [entry.token for entry in found] == list(ids)
    for entry, row in zip(found, naive_logprobs(length, sequence), strict=True):
        best = sorted(range(len(row)), key=lambda v: (-row[v], v))[:TOP]
        assert entry.logprob == pytest.approx(row[entry.token], abs=1e-9)
        assert [token for token, _ in entry.top] == best
        assert [value for _, value in entry.top] == pytest.approx([row[v] for v in best], abs=1e-9)


@pytest.mark.parametrize("method", ["chain", "wtree", "graph", "order"])
def test_they_do_not_depend_on_the_drafts(method: str) -> None:
    free = decoded(TOP, 6, method="standard", cap=0.9)
    drafted = decoded(TOP, 6, method=method, budget=8, cap=0.9)
    for one, other in zip(free.logprobs(0, LIMIT), drafted.logprobs(0, LIMIT), strict=True):
        assert one.token == other.token
        assert one.logprob == pytest.approx(other.logprob, abs=1e-9)


@pytest.mark.parametrize("setting", [{}, {"gamma": 3}, {"gamma": 1, "order": "positional"}])
def test_under_simsds_mask_they_are_those_of_the_slots(setting: dict[str, object]) -> None:
    """Without chance every committed token is the likeliest of its slot."""
    sequence = decoded(TOP, 6, method="simsd", **setting)
    found = sequence.logprobs(0, LIMIT)
    assert [entry.token for entry in found] == list(sequence.result().token_ids)
    assert all(entry.top[0] == (entry.token, entry.logprob) for entry in found)


@pytest.mark.parametrize("method", ["standard", "chain", "simsd"])
def test_asking_changes_nothing_and_who_does_not_ask_pays_nothing(method: str) -> None:
    asked, plain = decoded(0, 6, method=method), decoded(None, 6, method=method)
    assert asked.result().token_ids == plain.result().token_ids
    assert asked.result().rounds == plain.result().rounds
    assert all(entry.top == () for entry in asked.logprobs(0, LIMIT))
    assert plain.told == {}
    assert plain.logprobs(0, LIMIT) == ()


def test_half_precision_logits_are_read_in_full_precision() -> None:
    half = Target(tiny_model(dtype=torch.bfloat16))
    decoder = Decoder(half, {})
    options = DecodeOptions(max_new_tokens=4, ignore_stop=True)
    sequence = decoder.add(Request("one", (), options, top_logprobs=24))
    while not decoder.step():
        pass
    for entry in sequence.logprobs(0, 4):
        assert isinstance(entry, TokenLogprob)
        mass = math.fsum(math.exp(value) for _, value in entry.top)
        assert mass == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("most", [1, 5])
def test_without_chance_the_token_comes_first_however_many_are_as_likely(most: int) -> None:
    flat = torch.zeros(1, 300)
    flat[0, 7] = -1.0
    (entry,) = read_logprobs(flat, [int(flat.argmax())], most)
    assert [token for token, _ in entry.top] == list(range(most))
    assert entry.top[0] == (entry.token, entry.logprob)
