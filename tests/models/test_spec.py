"""A spec refuses what cannot be, and counts what follows from its sizes."""

from typing import Any

import pytest
from pydantic import ValidationError

from models.spec import TargetSpec
from models.tensor_parallel import check_tensor_parallel
from tests.conftest import tiny_model, tiny_spec
from tests.reference.families import family_spec


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
