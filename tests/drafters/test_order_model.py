"""The order model: a distribution over what is masked, small enough, and blind to the text."""

import json
from pathlib import Path

import pytest
import torch

from drafters.bundle import load_order_model, save_order_model
from drafters.features import MAX_BLOCK, NUM_STATIC
from drafters.order_model import OrderModel, OrderModelConfig
from tests.reference.running import tiny_order_model

L = 8
WAS = torch.tensor([[True] * L, [True] * 5 + [False] * 3])
NOW = torch.tensor([[i % 2 == 0 for i in range(L)], [False, True, True] + [False] * 5])


def static(batch: int = 2, length: int = L, seed: int = 0) -> torch.Tensor:
    return torch.randn(batch, length, NUM_STATIC, generator=torch.Generator().manual_seed(seed))


def test_it_has_the_papers_size() -> None:
    assert OrderModel(OrderModelConfig()).num_parameters == pytest.approx(620_000, rel=0.03)


def test_its_output_is_a_distribution_over_the_masked_positions() -> None:
    model = tiny_order_model()
    log_q = model(model.embed_static(static()), WAS, NOW)
    assert log_q.shape == NOW.shape
    assert torch.equal(log_q.isfinite(), NOW)
    torch.testing.assert_close(log_q.exp().sum(-1), torch.ones(2))


def test_one_masked_position_is_certain() -> None:
    model = tiny_order_model()
    now = torch.tensor([[i == 5 for i in range(L)]])
    assert float(model(model.embed_static(static(1)), WAS[:1], now)[0, 5].exp()) == 1.0


def test_equal_states_look_equal_whatever_stood_beside_them() -> None:
    model = tiny_order_model()
    embedded = model.embed_static(static())
    together = model(embedded, WAS, NOW)
    for row in range(2):
        alone = model(embedded[row : row + 1], WAS[row : row + 1], NOW[row : row + 1])
        torch.testing.assert_close(alone[0], together[row], rtol=0, atol=1e-5)


def test_what_was_filled_changes_the_prediction() -> None:
    model = tiny_order_model()
    embedded = model.embed_static(static(1)).expand(2, -1, -1)
    now = torch.tensor([[False] + [True] * 7, [True] * 7 + [False]])
    one, other = model(embedded, WAS[:1].expand(2, -1), now)
    assert (one - other)[1:7].abs().max() > 1e-4


def test_the_temperature_flattens_the_distribution() -> None:
    sharp = tiny_order_model()
    flat = OrderModel(sharp.config.model_copy(update={"temperature": 4.0})).eval()
    flat.load_state_dict(sharp.state_dict())
    q, p = (m(m.embed_static(static()), WAS, NOW).exp()[NOW] for m in (sharp, flat))
    assert p.max() < q.max()
    assert p.min() > q.min()


@pytest.mark.parametrize("length", [1, 4, 16, MAX_BLOCK])
def test_it_runs_on_any_block_up_to_its_own(length: int) -> None:
    model = tiny_order_model()
    masked = torch.ones(1, length, dtype=torch.bool)
    log_q = model(model.embed_static(static(1, length)), masked, masked)
    torch.testing.assert_close(log_q.exp().sum(-1), torch.ones(1))


def test_training_and_evaluation_mode_agree() -> None:
    """Nothing is dropped; the fused evaluation kernel computes what was trained."""
    model = tiny_order_model()
    embedded = model.embed_static(static())
    with torch.inference_mode():
        fast = model(embedded, WAS, NOW)
    slow = model.train()(embedded, WAS, NOW)
    torch.testing.assert_close(fast, slow, rtol=0, atol=1e-5)


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    model = OrderModel(
        OrderModelConfig(width=32, heads=4, layers=2, feed_forward=64, temperature=1.5)
    )
    save_order_model(model, tmp_path)
    loaded = load_order_model(tmp_path)
    assert loaded.config == model.config
    assert not loaded.training
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, loaded.state_dict()[name]), name


def test_weights_of_another_size_are_refused_by_name(tmp_path: Path) -> None:
    small = OrderModelConfig(width=32, heads=4, layers=1, feed_forward=64)
    save_order_model(OrderModel(small.model_copy(update={"layers": 2})), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text()) | small.model_dump()
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"model\.safetensors: .*Unexpected key.*\.1\."):
        load_order_model(tmp_path)
