"""Importing a published order model: tensors only, and a full list of what does not fit."""

import pickle
from pathlib import Path

import pytest
import torch

from drafters.bundle import load_order_model
from drafters.importing import import_order_model
from drafters.order_model import OrderModel, OrderModelConfig, build_order_model

SMALL = OrderModelConfig(encodes="states", width=32, heads=8, layers=2, feed_forward=48)
OURS = SMALL.model_copy(update={"encodes": "root", "head_width": 24})


@pytest.fixture
def model() -> OrderModel:
    torch.manual_seed(1)
    return build_order_model(SMALL)


@pytest.mark.parametrize("config", [SMALL, OURS], ids=["paper", "ours"])
@pytest.mark.parametrize("prefix", ["", "module.", "model.module."])
@pytest.mark.parametrize("nested", [None, "state_dict", "model"])
def test_a_fitting_state_dict_becomes_a_drafter_folder(
    config: OrderModelConfig, tmp_path: Path, prefix: str, nested: str | None
) -> None:
    torch.manual_seed(1)
    model = build_order_model(config)
    tensors = {prefix + name: tensor for name, tensor in model.state_dict().items()}
    torch.save({nested: tensors, "step": 3} if nested else tensors, tmp_path / "order.pt")
    import_order_model(tmp_path / "order.pt", tmp_path / "out")
    loaded = load_order_model(tmp_path / "out", tmp_path)
    assert not loaded.reads_tokens
    assert loaded.config == config
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, loaded.state_dict()[name]), name


def test_everything_that_does_not_fit_is_listed_and_nothing_is_written(
    model: OrderModel, tmp_path: Path
) -> None:
    tensors = dict(model.state_dict())
    tensors["head.weight"] = torch.ones(2, 32)
    tensors["extra.bias"] = torch.ones(3)
    tensors["static_in.bias"] = torch.full((32,), torch.nan)
    del tensors["position"]
    torch.save(tensors, tmp_path / "order.pt")
    with pytest.raises(ValueError, match="does not fit") as error:
        import_order_model(tmp_path / "order.pt", tmp_path / "out")
    said = str(error.value)
    assert "missing position [32, 32]" in said
    assert "unknown extra.bias [3]" in said
    assert "head.weight is [2, 32], not [1, 32]" in said
    assert "static_in.bias holds values that are not finite" in said
    assert not (tmp_path / "out").exists()


class Harmful:
    def __reduce__(self):
        return Path.touch, (Path("harmed"),)


def test_pickled_code_never_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in [("a.pt", {"x": Harmful()}), ("b.pt", Harmful())]:
        torch.save(content, tmp_path / name)
        with pytest.raises(ValueError, match="not a file of plain tensors"):
            import_order_model(tmp_path / name, tmp_path / "out")
    (tmp_path / "c.pt").write_bytes(pickle.dumps(Harmful(), protocol=2))
    with pytest.raises(ValueError, match="not a file of plain tensors"):
        import_order_model(tmp_path / "c.pt", tmp_path / "out")
    assert not (tmp_path / "harmed").exists()


def test_other_files_are_refused_by_name(tmp_path: Path) -> None:
    torch.save({"lr": 0.1}, tmp_path / "number.pt")
    with pytest.raises(ValueError, match="not a state dict"):
        import_order_model(tmp_path / "number.pt", tmp_path / "out")
    with pytest.raises(ValueError, match="No such file"):
        import_order_model(tmp_path / "none.pt", tmp_path / "out")


def test_a_width_that_the_heads_do_not_share_is_refused(tmp_path: Path) -> None:
    odd = {"encoder.layers.0.linear1.weight": torch.ones(48, 100), "head.bias": torch.ones(1)}
    torch.save(odd, tmp_path / "odd.pt")
    with pytest.raises(ValueError, match=r"heads: 8 must divide width \(100\)"):
        import_order_model(tmp_path / "odd.pt", tmp_path / "out")
