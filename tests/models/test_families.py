"""Every family loads from its own format, strictly, and each rank only its own slices."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from models.checkpoint import read_spec, save_checkpoint
from models.config import TargetConfig
from models.families.registry import FAMILIES as KNOWN
from models.loading import load_model, load_weights
from models.ranks import Ranks
from models.tensor_parallel import shard_model
from models.transformer import Transformer
from tests.conftest import tiny_model
from tests.reference.families import FAMILIES, family_spec


def saved(family: str, folder: Path, dtype: str = "float64") -> Transformer:
    model = tiny_model(family_spec(family))
    save_checkpoint(model, folder, dtype=dtype)
    return model


def load(folder: Path, **values: Any) -> Transformer:
    config = {"path": str(folder), "dtype": "float64"} | values
    return load_model(TargetConfig.model_validate(config))


def test_every_known_family_is_tested() -> None:
    assert set(FAMILIES) == set(KNOWN)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_was_saved_in_a_familys_format_comes_back(family: str, tmp_path: Path) -> None:
    model = saved(family, tmp_path / "model-b4")
    loaded = load(tmp_path / "model-b4")
    assert loaded.spec == model.spec
    for (name, one), (_, other) in zip(
        model.named_parameters(), loaded.named_parameters(), strict=True
    ):
        assert torch.equal(one, other), name


@pytest.mark.parametrize("family", FAMILIES)
def test_parameters_are_counted_from_the_sizes_alone(family: str) -> None:
    spec = family_spec(family)
    assert spec.num_parameters == sum(p.numel() for p in Transformer(spec).parameters())


@pytest.mark.parametrize("family", FAMILIES)
def test_one_missing_one_unknown_and_one_misshapen_tensor_are_named(
    family: str, tmp_path: Path
) -> None:
    saved(family, tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    name = sorted(tensors)[len(tensors) // 2]
    save_file({k: v for k, v in tensors.items() if k != name}, path)
    with pytest.raises(ValueError, match=f"1 tensors are missing: {name}"):
        load(tmp_path)
    save_file(tensors | {"model.more.weight": torch.ones(1)}, path)
    with pytest.raises(ValueError, match=r"unknown tensor model\.more\.weight"):
        load(tmp_path)
    save_file(tensors | {name: torch.ones(3)}, path)
    with pytest.raises(ValueError, match=rf"{name} has shape \[3\], not "):
        load(tmp_path)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_reads_only_its_own_slices(family: str, rank: int, tmp_path: Path) -> None:
    whole = saved(family, tmp_path)
    ranks = Ranks(rank, 2, control=None)  # pyright: ignore[reportArgumentType]
    shard_model(whole, ranks)
    config = TargetConfig(path=str(tmp_path), dtype="float64")
    share = load_model(config, ranks)
    for (name, one), (_, other) in zip(
        whole.named_parameters(), share.named_parameters(), strict=True
    ):
        assert torch.equal(one, other), name
    assert sum(p.numel() for p in share.parameters()) < whole.spec.num_parameters * 0.7


def test_merged_experts_load_like_single_ones(tmp_path: Path) -> None:
    model = saved("llada2_moe", tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    stem = "model.layers.1.mlp.experts."
    for name in ("gate_proj", "up_proj", "down_proj"):
        parts = [tensors.pop(f"{stem}{e}.{name}.weight") for e in range(8)]
        tensors[stem + name] = torch.stack(parts)
    save_file(tensors, path)
    for one, other in zip(model.parameters(), load(tmp_path).parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_routers_bias_is_kept_in_fp32_beside_bf16_weights(tmp_path: Path) -> None:
    saved("llada2_moe", tmp_path, dtype="bfloat16")
    stored = load_file(tmp_path / "model.safetensors")
    assert stored["model.layers.1.mlp.gate.expert_bias"].dtype == torch.float32
    loaded = dict(load(tmp_path, dtype="bfloat16").named_parameters())
    assert loaded["layers.1.mlp.router.bias"].dtype == torch.float32
    assert loaded["layers.1.mlp.router.weight"].dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("family", "key"),
    [
        ("sdar_moe", "norm_topk_prob"),
        ("llada2_moe", "routed_scaling_factor"),
        ("llada", "mlp_hidden_size"),
        ("Dream", "rms_norm_eps"),
    ],
)
def test_a_missing_field_is_never_guessed(family: str, key: str, tmp_path: Path) -> None:
    saved(family, tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    del config[key]
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match=f"missing {key}"):
        read_spec(tmp_path)


def test_llada2_leaves_the_weight_of_a_single_expert_as_it_is(tmp_path: Path) -> None:
    """As its published router does: made to sum to one, it would say nothing of the score."""
    saved("llada2_moe", tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"num_experts_per_tok": 1}))
    layer: Any = load(tmp_path).layers[1]
    router = layer.mlp.router
    x = torch.randn(5, 32, dtype=torch.float64)
    chosen, weights = router(x)
    scores = torch.sigmoid(x @ router.weight.T).gather(1, chosen)
    torch.testing.assert_close(weights, scores * router.experts.scaling)


def test_the_users_block_size_fills_in_but_does_not_overrule(tmp_path: Path) -> None:
    saved("sdar", tmp_path / "plain")
    path = tmp_path / "plain" / "config.json"
    config = json.loads(path.read_text())
    with pytest.raises(ValueError, match=r"target\.block_size 8: plain was made for blocks of 4"):
        load(tmp_path / "plain", block_size=8)
    assert load(tmp_path / "plain", block_size=8, force_block_size=True).spec.block_size == 8
    del config["block_size"]
    path.write_text(json.dumps(config))
    assert read_spec(tmp_path / "plain").block_size == 4
    assert load(tmp_path / "plain", block_size=8).spec.block_size == 8
    (tmp_path / "plain").rename(tmp_path / "plain-b16")
    assert read_spec(tmp_path / "plain-b16").block_size == 16
    with pytest.raises(ValueError, match="made for blocks of 16"):
        load(tmp_path / "plain-b16", block_size=8)


def test_loading_into_a_whole_network_needs_no_ranks(tmp_path: Path) -> None:
    model = saved("sdar", tmp_path)
    other = Transformer(model.spec).double()
    load_weights(other, tmp_path)
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)
