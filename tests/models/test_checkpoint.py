"""Checkpoints load strictly: nothing missing, nothing unknown, nothing guessed in silence."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from models.checkpoint import find_checkpoint, read_spec, save_checkpoint
from models.config import TargetConfig
from models.digests import digest
from models.loading import load_model, load_weights
from models.transformer import Transformer
from tests.conftest import tiny_model, tiny_spec

Tensors = dict[str, torch.Tensor]
NAME = "model.layers.1.self_attn.k_proj.weight"


@pytest.fixture
def folder(tiny_folder: Path, tmp_path: Path) -> Path:
    """A copy of the tiny checkpoint to damage."""
    return shutil.copytree(tiny_folder, tmp_path / "copy-b4")


def rewrite(folder: Path, change: Callable[[Tensors], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def configure(folder: Path, **values: Any) -> None:
    """Set keys of config.json; ``None`` takes one out."""
    path = folder / "config.json"
    config = json.loads(path.read_text()) | values
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))


def load(folder: Path, **values: Any) -> Transformer:
    return load_model(TargetConfig.model_validate({"path": str(folder)} | values))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_what_was_saved_comes_back(dtype: str, tmp_path: Path) -> None:
    model = tiny_model(dtype=getattr(torch, dtype))
    save_checkpoint(model, tmp_path / "tiny", dtype=dtype)
    loaded = load(tmp_path / "tiny", dtype=dtype)
    assert loaded.spec == model.spec
    assert not loaded.training
    for (name, one), (_, other) in zip(
        model.named_parameters(), loaded.named_parameters(), strict=True
    ):
        assert torch.equal(one, other), name
        assert other.dtype == getattr(torch, dtype)
        assert not other.requires_grad


def test_tensor_names_are_the_familys(folder: Path) -> None:
    names = set(load_file(folder / "model.safetensors"))
    assert {"lm_head.weight", "model.embed_tokens.weight", "model.norm.weight", NAME} <= names
    assert {n.split(".", 3)[-1] for n in names if ".layers.0." in n} == {
        "input_layernorm.weight",
        "post_attention_layernorm.weight",
        *(f"self_attn.{p}_proj.weight" for p in "qkvo"),
        *(f"self_attn.{p}_norm.weight" for p in "qk"),
        *(f"mlp.{p}_proj.weight" for p in ("gate", "up", "down")),
    }


def test_any_sharding_loads(folder: Path) -> None:
    whole = load(folder)
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    (folder / "model.safetensors").unlink()
    for shard in range(3):
        part = {name: tensors[name] for name in names[shard::3]}
        save_file(part, folder / f"model-0000{shard + 1}-of-00003.safetensors")
    for one, other in zip(whole.parameters(), load(folder).parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_tensor_in_two_files_is_refused(folder: Path) -> None:
    save_file({NAME: torch.ones(16, 32)}, folder / "second.safetensors")
    with pytest.raises(ValueError, match=rf"second.*{NAME} stands in an earlier file too"):
        load(folder)


@pytest.mark.parametrize(
    ("key", "value"),
    [("hidden_act", "gelu"), ("attention_bias", True), ("use_sliding_window", True)],
)
def test_layers_that_would_compute_something_else_are_refused(
    folder: Path, key: str, value: object
) -> None:
    configure(folder, **{key: value})
    with pytest.raises(ValueError, match=f"{key} {value!r}: only"):
        load(folder)


def test_a_missing_tensor_is_named(folder: Path) -> None:
    rewrite(folder, lambda tensors: tensors.pop(NAME))
    with pytest.raises(ValueError, match=f"1 tensors are missing: {NAME}"):
        load(folder)


def test_an_unknown_tensor_is_named(folder: Path) -> None:
    rewrite(folder, lambda tensors: tensors.update({"model.extra.weight": torch.ones(1)}))
    with pytest.raises(ValueError, match=r"unknown tensor model\.extra\.weight"):
        load(folder)


def test_a_tensor_of_a_layer_too_many_is_unknown(folder: Path) -> None:
    configure(folder, num_hidden_layers=1)
    with pytest.raises(ValueError, match=r"unknown tensor model\.layers\.1\."):
        load(folder)


def test_a_misshapen_tensor_is_named_with_both_shapes(folder: Path) -> None:
    rewrite(folder, lambda tensors: tensors.update({NAME: torch.ones(16, 31)}))
    with pytest.raises(ValueError, match=rf"{NAME} has shape \[16, 31\], not \[16, 32\]"):
        load(folder)


def test_pickled_weights_are_refused(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"no \*\.safetensors \(pickled weights are not read\)"):
        load(folder)


def test_both_spellings_of_the_rotary_base_are_read(folder: Path) -> None:
    configure(folder, rope_theta=5e5)
    assert read_spec(folder).rope_theta == 5e5
    configure(folder, rope_theta=None, rope_parameters={"rope_type": "default", "rope_theta": 1e6})
    assert read_spec(folder).rope_theta == 1e6


@pytest.mark.parametrize("key", ["rope_parameters", "rope_scaling"])
def test_a_scaled_rotary_is_refused(folder: Path, key: str) -> None:
    configure(folder, **{key: {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e6}})
    with pytest.raises(ValueError, match="rope type 'yarn' is not known"):
        read_spec(folder)


def test_of_two_spellings_of_the_rotary_none_is_overlooked(folder: Path) -> None:
    plain = {"rope_type": "default", "rope_theta": 1e6}
    configure(folder, rope_theta=1e6, rope_parameters=plain, rope_scaling={"type": "yarn"})
    with pytest.raises(ValueError, match="rope type 'yarn' is not known"):
        read_spec(folder)
    configure(folder, rope_theta=5e5, rope_parameters=plain, rope_scaling=None)
    with pytest.raises(ValueError, match=r"rope_theta 500000\.0, rope_parameters\.rope_theta 10"):
        read_spec(folder)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"num_key_value_heads": 0}, "num_key_value_heads 0 must be above 0"),
        ({"num_hidden_layers": "two"}, "num_hidden_layers 'two' must be above 0"),
        ({"rope_scaling": "yarn"}, "rope_scaling 'yarn' is no object"),
        ({"model_type": ["sdar"]}, r"model_type \['sdar'\] is not known"),
        ({"mask_token_id": "mask"}, "mask_token_id: 'mask' must be a valid integer"),
    ],
    ids=str,
)
def test_a_value_that_is_none_is_refused_in_one_line(
    folder: Path, values: dict[str, object], told: str
) -> None:
    configure(folder, **values)
    with pytest.raises(ValueError, match=rf"^config\.json of [^\n]*{told}[^\n]*$"):
        read_spec(folder)


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_configuration_that_is_no_object_is_named(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    with pytest.raises(ValueError, match=f"^{name} of .*: no JSON"):
        read_spec(folder)


def test_no_rotary_base_at_all_is_refused(folder: Path) -> None:
    configure(folder, rope_theta=None)
    with pytest.raises(ValueError, match="missing rope_theta"):
        read_spec(folder)


@pytest.mark.parametrize("key", ["hidden_size", "head_dim", "vocab_size", "eos_token_id"])
def test_a_missing_size_is_refused_by_name(folder: Path, key: str) -> None:
    configure(folder, **{key: None})
    with pytest.raises(ValueError, match=f"missing {key}"):
        read_spec(folder)


def test_an_unknown_family_is_refused_with_the_known_ones(folder: Path) -> None:
    configure(folder, model_type="gpt2")
    with pytest.raises(ValueError, match=r"model_type 'gpt2' is not known; known are .*sdar_moe"):
        read_spec(folder)


def test_a_block_size_that_the_checkpoint_was_not_made_for_is_refused(folder: Path) -> None:
    assert load(folder, block_size=4).spec.block_size == 4
    with pytest.raises(ValueError, match=r"block_size 8: .*made for blocks of 4"):
        load(folder, block_size=8)


def test_the_block_size_is_the_configurations_then_the_names_then_four(
    folder: Path, tmp_path: Path
) -> None:
    configure(folder, block_size=16)
    assert read_spec(folder).block_size == 16
    configure(folder, block_size=None)
    assert read_spec(folder).block_size == 4
    for name, size in [("SDAR-1.7B-Chat-b32", 32), ("x-b8-v2", 8), ("plain", 4), ("x-b16k", 16)]:
        assert read_spec(shutil.copytree(folder, tmp_path / name)).block_size == size


def test_stop_ids_come_from_the_generation_configuration(folder: Path) -> None:
    assert read_spec(folder).stop_token_ids == (2, 1)
    (folder / "generation_config.json").unlink()
    configure(folder, eos_token_id=7)
    assert read_spec(folder).stop_token_ids == (7,)
    configure(folder, eos_token_id=[7, 9], pad_token_id=None)
    assert read_spec(folder).stop_token_ids == (7, 9)
    assert read_spec(folder).pad_token_id == 7


def test_a_mask_id_outside_the_vocabulary_is_refused(folder: Path) -> None:
    configure(folder, mask_token_id=None)
    with pytest.raises(ValueError, match="mask_token_id 151669 lies outside the vocabulary"):
        read_spec(folder)


def test_finding_a_checkpoint(folder: Path) -> None:
    assert find_checkpoint(str(folder)) == folder
    with pytest.raises(ValueError, match=r"target\.path 'nowhere' is neither a folder"):
        find_checkpoint("nowhere")


def test_the_digest_follows_whatever_decides_the_output(folder: Path) -> None:
    before = digest(folder)
    assert digest(folder) == before
    (folder / "README.md").write_text("a card")
    assert digest(folder) == before
    changes = [
        lambda: configure(folder, block_size=8),
        lambda: rewrite(folder, lambda tensors: tensors[NAME].mul_(1.001)),
        lambda: (folder / "tokenizer.json").write_text("{}"),
        lambda: (folder / "generation_config.json").write_text('{"eos_token_id": 5}'),
    ]
    for change in changes:
        change()
        assert digest(folder) != before
        before = digest(folder)


def test_loading_fills_every_parameter_of_a_fresh_network(folder: Path) -> None:
    model = Transformer(tiny_spec())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(torch.nan)
    load_weights(model, folder)
    assert not any(parameter.isnan().any() for parameter in model.parameters())


def test_a_hub_id_finds_its_local_copy_under_the_repositorys_name(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = tmp_path / "hub" / "models--some-lab--SDAR-tiny-b16"
    configure(folder, block_size=None)
    shutil.copytree(folder, repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    for name in ("some-lab/SDAR-tiny-b16", f"some-lab/SDAR-tiny-b16@{commit}"):
        found = find_checkpoint(name)
        assert found == repository / "snapshots" / commit
        assert read_spec(found).block_size == 16, "the name says it, the configuration does not"


def test_what_neither_disk_nor_hub_has_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ValueError, match="'some-lab/nothing': not a folder, and from the hub: "):
        find_checkpoint("some-lab/nothing")


def test_a_damaged_file_is_named(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ValueError, match=r"model\.safetensors is no readable safetensors file"):
        load(folder)


def test_a_dtype_that_is_not_read_is_named(folder: Path) -> None:
    rewrite(folder, lambda tensors: tensors.update({NAME: tensors[NAME].to(torch.int8)}))
    with pytest.raises(ValueError, match="tensors of dtype I8 are not read; known are F64, F32"):
        load(folder)
