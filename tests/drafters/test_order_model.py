"""The order model: a distribution over what is masked, small enough, and as blind as it says."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import torch

from drafters.bundle import load_order_model, save_order_model
from drafters.features import MAX_BLOCK, NUM_TOKENS, TOP_K, StaleTensors
from drafters.order_model import OrderModel, OrderModelConfig, build_order_model, hidden_tokens
from models.text import save_tokenizer, train_tokenizer, vocabulary_digest
from tests.reference.running import ORDER_FORMS, tiny_order_model

L = 8
WAS = [[True] * L, [True] * 5 + [False] * 3]
MASKED = torch.tensor(
    [
        [[i % 2 == 0 for i in range(L)], [i > 2 for i in range(L)]],
        [[False, True, True] + [False] * 5, [True] * 4 + [False] * 4],
    ]
)
Form = Literal["root", "states"]
forms = pytest.mark.parametrize("form", ORDER_FORMS)


def stale_of(was: list[list[bool]], seed: int = 0) -> StaleTensors:
    """Random distributions where positions were masked."""
    masked = torch.tensor(was)
    generator = torch.Generator().manual_seed(seed)
    log_probs = torch.log_softmax(torch.randn(*masked.shape, 40, generator=generator), dim=-1)
    top = log_probs.sort(dim=-1, descending=True).values[..., :TOP_K]
    odds = (top[..., 0] - torch.log1p(-top[..., 0].exp())) * masked
    ids = torch.randint(0, 40, (*masked.shape, NUM_TOKENS), generator=generator)
    ids[..., 1:][~masked] = -1
    return StaleTensors(
        log_probs_BLK=top * masked[..., None],
        ids_BLC=ids,
        entropy_BL=torch.rand(masked.shape, generator=generator) * masked,
        log_odds_BL=odds,
        rank_log_odds_BL=odds,
        was_masked_BL=masked,
        prompt_tail_BL=torch.zeros_like(masked),
        cap_log_odds_B=torch.full((len(was),), math.inf),
    )


def log_q(model: OrderModel, masked: torch.Tensor = MASKED) -> torch.Tensor:
    return model(model.encode(stale_of(WAS)), masked)


PAPERS = {"encodes": "states", "token_buckets": 0, "feed_forward": 512}


@pytest.mark.parametrize("sizes", [{"encodes": form} for form in ORDER_FORMS] + [PAPERS])
def test_it_has_the_papers_size(sizes: dict) -> None:
    model = build_order_model(OrderModelConfig(**sizes))
    assert model.num_parameters == pytest.approx(620_000, rel=0.03)


@forms
def test_its_output_is_a_distribution_over_the_masked_positions(form: Form) -> None:
    found = log_q(tiny_order_model(encodes=form))
    assert found.shape == MASKED.shape
    assert torch.equal(found.isfinite(), MASKED)
    torch.testing.assert_close(found.exp().sum(-1), torch.ones(2, 2))


@forms
def test_one_masked_position_is_certain(form: Form) -> None:
    model = tiny_order_model(encodes=form)
    masked = torch.tensor([[[i == 5 for i in range(L)]]])
    assert float(model(model.encode(stale_of(WAS[:1])), masked)[0, 0, 5].exp()) == 1.0


@forms
def test_a_state_looks_the_same_whatever_is_asked_beside_it(form: Form) -> None:
    model = tiny_order_model(encodes=form)
    encoded = model.encode(stale_of(WAS))
    together = model(encoded, MASKED)
    for row in range(2):
        own = encoded.of([row])
        for state in range(2):
            alone = model(own, MASKED[row, state][None, None])
            torch.testing.assert_close(alone[0, 0], together[row, state], rtol=0, atol=1e-5)


@forms
def test_what_was_filled_changes_the_prediction(form: Form) -> None:
    model = tiny_order_model(encodes=form)
    masked = torch.tensor([[[False] + [True] * 7, [True] * 7 + [False]]])
    one, other = model(model.encode(stale_of(WAS[:1])), masked)[0]
    between = (one - other)[1:7]
    assert (between - between.mean()).abs().max() > 1e-4


@forms
def test_an_untrained_model_leans_on_the_stale_order(form: Form) -> None:
    """With the network's own opinion silenced, what is left is the order of confidence."""
    model = tiny_order_model(encodes=form)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.startswith("head."):
                parameter.zero_()
    stale = stale_of(WAS)
    capped = stale.rank_log_odds_BL[:, None].expand_as(MASKED).masked_fill(~MASKED, -math.inf)
    assert torch.equal(model(model.encode(stale), MASKED).argmax(-1), capped.argmax(-1))


@forms
def test_only_tokens_that_it_may_read_change_the_prediction(form: Form) -> None:
    model = tiny_order_model(encodes=form)
    stale = stale_of(WAS)
    others = replace(stale, ids_BLC=(stale.ids_BLC + 5) % 40)
    none = replace(stale, ids_BLC=torch.full_like(stale.ids_BLC, -1))

    def predicted(of: StaleTensors) -> torch.Tensor:
        return model(model.encode(of), MASKED)

    assert not torch.equal(predicted(stale), predicted(others))
    with hidden_tokens(model):
        assert torch.equal(predicted(stale), predicted(none))
        assert torch.equal(predicted(stale), predicted(others))
    assert model.reads_tokens


def test_a_model_without_a_token_table_reads_no_ids() -> None:
    model = build_order_model(tiny_order_model().config.model_copy(update={"token_buckets": 0}))
    stale = stale_of(WAS)
    others = replace(stale, ids_BLC=stale.ids_BLC + 5)
    one, other = (model(model.encode(of), MASKED) for of in (stale, others))
    assert torch.equal(one, other)


def test_hidden_tokens_have_a_temperature_of_their_own() -> None:
    model = tiny_order_model()
    model.config = model.config.model_copy(update={"temperature": 2.0, "blind_temperature": 4.0})
    assert model.temperature == 2.0
    with hidden_tokens(model):
        assert model.temperature == 4.0


def test_the_temperature_flattens_the_distribution() -> None:
    sharp = tiny_order_model()
    flat = build_order_model(sharp.config.model_copy(update={"temperature": 4.0})).eval()
    flat.load_state_dict(sharp.state_dict())
    q, p = (log_q(model).exp()[MASKED] for model in (sharp, flat))
    assert p.max() < q.max()
    assert p.min() > q.min()


@forms
@pytest.mark.parametrize("length", [1, 4, 16, MAX_BLOCK])
def test_it_runs_on_any_block_up_to_its_own(form: Form, length: int) -> None:
    model = tiny_order_model(encodes=form)
    masked = torch.ones(1, 1, length, dtype=torch.bool)
    found = model(model.encode(stale_of([[True] * length])), masked)
    torch.testing.assert_close(found.exp().sum(-1), torch.ones(1, 1))


@forms
def test_training_and_evaluation_mode_agree(form: Form) -> None:
    """Nothing is dropped; the fused evaluation kernel computes what was trained."""
    model = tiny_order_model(encodes=form)
    with torch.inference_mode():
        fast = log_q(model)
    torch.testing.assert_close(fast, log_q(model.train()), rtol=0, atol=1e-5)


@forms
def test_what_was_saved_comes_back(form: Form, tmp_path: Path) -> None:
    sizes = {"width": 32, "heads": 4, "layers": 2, "feed_forward": 64, "temperature": 1.5}
    model = build_order_model(OrderModelConfig(encodes=form, **sizes))
    save_order_model(model, tmp_path)
    loaded = load_order_model(tmp_path, None)
    assert loaded.config == model.config
    assert type(loaded) is type(model)
    assert not loaded.training
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, loaded.state_dict()[name]), name


def test_weights_of_another_size_are_refused_by_name(tmp_path: Path) -> None:
    small = OrderModelConfig(width=32, heads=4, layers=1, feed_forward=64)
    save_order_model(build_order_model(small.model_copy(update={"layers": 2})), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text()) | small.model_dump()
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"model\.safetensors: .*Unexpected key.*\.1\."):
        load_order_model(tmp_path, None)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("config.json", "[]", "config.json is no JSON object"),
        ("config.json", "{", "config.json is no JSON"),
        ("config.json", '{"model_type": "maskahead-order", "heads": 0}', "heads: 0 must be"),
        ("model.safetensors", "half of a fi", "no readable safetensors file"),
    ],
)
def test_a_damaged_folder_is_told_in_one_line(
    name: str, text: str, told: str, tmp_path: Path
) -> None:
    small = OrderModelConfig(width=16, heads=2, layers=1, feed_forward=16)
    save_order_model(build_order_model(small), tmp_path)
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=rf"^drafter [^\n]*{told}[^\n]*$"):
        load_order_model(tmp_path, None)


def test_it_reads_the_ids_of_the_vocabulary_that_it_learnt_and_no_other(tmp_path: Path) -> None:
    train_texts = {"own": ["one two three"] * 9, "other": ["four five six"] * 9}
    for name, texts in train_texts.items():
        save_tokenizer(train_tokenizer(texts, 270), tmp_path / name)
    (tmp_path / "none").mkdir()
    config = OrderModelConfig(vocabulary=vocabulary_digest(tmp_path / "own"), width=32, layers=1)
    save_order_model(build_order_model(config), tmp_path / "order")
    reads = {
        name: load_order_model(tmp_path / "order", tmp_path / name).reads_tokens
        for name in ("own", "other", "none")
    }
    assert reads == {"own": True, "other": False, "none": False}
    assert not load_order_model(tmp_path / "order", None).reads_tokens


def test_a_model_of_no_known_vocabulary_reads_no_ids(tmp_path: Path) -> None:
    """A target without a tokenizer has no vocabulary either; two unknown ones are not one."""
    save_order_model(build_order_model(OrderModelConfig(width=32, layers=1)), tmp_path / "order")
    assert not load_order_model(tmp_path / "order", tmp_path).reads_tokens


def test_a_folder_from_before_there_were_token_ids_still_opens(tmp_path: Path) -> None:
    model = build_order_model(OrderModelConfig(width=32, layers=1, token_buckets=0))
    save_order_model(model, tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    for key in ("token_buckets", "token_width", "vocabulary", "blind_temperature"):
        del config[key]
    path.write_text(json.dumps(config))
    assert load_order_model(tmp_path, None).tokens is None
