"""A spec refuses what cannot be, and counts what follows from its sizes."""

from typing import Any

import pytest
from pydantic import ValidationError

from models.spec import TargetSpec
from models.tensor_parallel import check_tensor_parallel
from tests.conftest import tiny_model, tiny_spec
from tests.reference.families import family_spec

SDAR = {
    "family": "sdar",
    "head_dim": 128,
    "num_kv_heads": 8,
    "vocab_size": 151_936,
    "rope_theta": 1e6,
    "rms_norm_eps": 1e-6,
    "max_positions": 32_768,
    "block_size": 4,
    "mask_token_id": 151_669,
    "stop_token_ids": (151_645, 151_643),
    "pad_token_id": 151_643,
}


def changed(**values: object) -> TargetSpec:
    return TargetSpec.model_validate(tiny_spec().model_dump() | values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_kv_heads": 3}, "num_attention_heads 4 must be a multiple of num_key_value_heads 3"),
        ({"block_size": 0}, "block_size 0 must be at least 1"),
        ({"mask_token_id": 24}, r"mask_token_id 24 lies outside the vocabulary \(0..23\)"),
        ({"pad_token_id": -1}, "pad_token_id -1 lies outside"),
        ({"colour": "red"}, "colour"),
        ({"topology": "causal"}, "topology"),
    ],
    ids=str,
)
def test_impossible_specs_are_refused_by_field_and_value(
    values: dict[str, object], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        changed(**values)


def test_parameters_are_counted_from_the_sizes_alone() -> None:
    for spec in (tiny_spec(), tiny_spec(8, 40), changed(num_layers=5, num_kv_heads=1)):
        model = tiny_model(spec)
        assert spec.num_parameters == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("hidden", "layers", "heads", "intermediate", "total_bytes"),
    [(2560, 36, 32, 9728, 8_822_848_512), (4096, 36, 32, 12_288, 16_381_470_720)],
    ids=["SDAR-4B", "SDAR-8B"],
)
def test_public_checkpoints_have_the_published_total_size(
    hidden: int, layers: int, heads: int, intermediate: int, total_bytes: int
) -> None:
    """``total_size`` of their index files, in bfloat16."""
    sizes = {
        "hidden_size": hidden,
        "num_layers": layers,
        "num_heads": heads,
        "intermediate_size": intermediate,
    }
    assert 2 * TargetSpec.model_validate(SDAR | sizes).num_parameters == total_bytes


def test_tensor_parallel_sizes_divide_heads_feed_forward_and_vocabulary() -> None:
    assert tiny_spec().tensor_parallel_sizes == (1, 2)
    assert changed(num_heads=8, num_kv_heads=8).tensor_parallel_sizes == (1, 2, 4, 8)
    assert changed(vocab_size=25).tensor_parallel_sizes == (1,)
    assert changed(num_heads=3, num_kv_heads=3).tensor_parallel_sizes == (1,)


@pytest.mark.parametrize(
    ("family", "values", "size", "why"),
    [
        ("sdar", {}, 4, "num_key_value_heads 2"),
        ("sdar", {"vocab_size": 25}, 2, "vocab_size 25"),
        ("sdar", {"intermediate_size": 65}, 2, "intermediate_size 65"),
        ("sdar_moe", {"num_kv_heads": 4}, 4, "num_experts 6"),
        ("llada2_moe", {"num_heads": 3, "num_kv_heads": 3}, 3, "intermediate_size 64, num_exp"),
        ("llada2_moe", {"experts": {"count": 8, "per_token": 1, "shared": 1}}, 2, "shared exp"),
    ],
    ids=str,
)
def test_ranks_that_do_not_divide_are_refused_with_the_reason_and_the_valid_ones(
    family: str, values: dict[str, Any], size: int, why: str
) -> None:
    if "experts" in values:
        values = {"experts": {"intermediate_size": 7, "dense_layers": 1} | values["experts"]}
    spec = TargetSpec.model_validate(family_spec(family).model_dump() | values)
    valid = ", ".join(map(str, spec.tensor_parallel_sizes))
    assert size not in spec.tensor_parallel_sizes
    with pytest.raises(ValueError, match=rf"target\.tp {size} .*\({why}.*\); valid: {valid}$"):
        check_tensor_parallel(spec, size)
