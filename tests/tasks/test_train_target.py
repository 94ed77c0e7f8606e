"""Training a target: what it may start from."""

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from tasks.train_target import TrainTargetConfig, train_target

NETWORK = {
    "hidden_size": 32,
    "num_layers": 1,
    "num_heads": 2,
    "num_kv_heads": 1,
    "head_dim": 16,
    "intermediate_size": 64,
    "block_size": 8,
}


def config(out: Path, **values: Any) -> TrainTargetConfig:
    """One step at a learning rate that changes next to nothing."""
    training = {
        "steps": 1,
        "batch_size": 2,
        "noisy_blocks": 2,
        "matmul_dtype": "float32",
        "learning_rate": 1e-9,
    }
    base = {"tokenizer": {"vocab_size": 300, "num_texts": 40}, "network": NETWORK}
    return TrainTargetConfig.model_validate({"out": str(out), "training": training} | base | values)


def trained(out: Path, **values: Any) -> dict[str, Any]:
    return load_file(train_target(config(out, **values), lambda row: None) / "model.safetensors")


def test_layers_alone_start_another_tokenizers_target(tmp_path: Path) -> None:
    source = trained(tmp_path / "source")
    other = {"tokenizer": {"vocab_size": 300, "num_texts": 40, "cut": "spaces"}}
    seeded = {"training": config(tmp_path).training.model_dump() | {"seed": 5}}
    found = trained(tmp_path / "found", init_layers=str(tmp_path / "source"), **(other | seeded))
    for name, tensor in found.items():
        is_end = "embed" in name or "lm_head" in name
        close = (tensor.float() - source[name].float()).abs().max() < 1e-4
        assert close != is_end, name


def test_layers_of_another_shape_are_refused(tmp_path: Path) -> None:
    trained(tmp_path / "source")
    deeper = {"network": NETWORK | {"num_layers": 2}}
    with pytest.raises(ValueError, match=r"init_layers .*another shape \(layers\.1\."):
        trained(tmp_path / "found", init_layers=str(tmp_path / "source"), **deeper)


def test_all_weights_start_a_target_of_other_blocks(tmp_path: Path) -> None:
    source = trained(tmp_path / "source")
    own = {"tokenizer": {"path": str(tmp_path / "source" / "tokenizer.json")}}
    network = {"network": NETWORK | {"block_size": 4}}
    found = trained(tmp_path / "found", init=str(tmp_path / "source"), **(own | network))
    for name, tensor in found.items():
        assert (tensor.float() - source[name].float()).abs().max() < 1e-4, name
