"""What a target needs is computed from its sizes, and is what it then really takes."""

import pytest
import torch

from decoders.loop import Decoder
from decoders.options import DecodeOptions
from decoders.proposers.chain import ChainProposer
from decoders.request import Request
from models.checkpoint import DTYPES, stored_dtype
from models.footprint import cache_bytes, forward_bytes, need, weight_bytes
from models.int8 import int8_bytes
from models.layout import parameter_shapes
from models.opening import open_target
from models.spec import TargetSpec
from models.tensor_parallel import share_shapes
from tests.conftest import tiny_model
from tests.reference.families import FAMILIES, family_spec
from tests.reference.live_bytes import LiveBytes
from tests.reference.published import PARAMETERS, PUBLISHED, TOTAL_SIZES


def changed(family: str, **values: object) -> TargetSpec:
    return TargetSpec.model_validate(family_spec(family).model_dump() | values)


@pytest.mark.parametrize("name", TOTAL_SIZES)
def test_published_checkpoints_have_the_published_total_size(name: str) -> None:
    assert weight_bytes(PUBLISHED[name], "bfloat16") == TOTAL_SIZES[name]


@pytest.mark.parametrize("name", PARAMETERS)
def test_published_checkpoints_have_as_many_parameters_as_their_cards_say(name: str) -> None:
    billions, digits = PARAMETERS[name]
    assert round(PUBLISHED[name].num_parameters / 1e9, digits) == billions


@pytest.mark.parametrize("name", PUBLISHED)
def test_what_the_sizes_say_is_what_the_tensors_add_up_to(name: str) -> None:
    spec = PUBLISHED[name]
    for dtype, kind in DTYPES.items():
        sizes = {
            parameter: torch.Size(shape).numel() * stored_dtype(parameter, kind).itemsize
            for parameter, shape in parameter_shapes(spec).items()
        }
        assert weight_bytes(spec, dtype) == sum(sizes.values())


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_rank_takes_what_was_computed_for_it(name: str) -> None:
    """Experts by rank, routers and norms on every one, the vocabulary cut."""
    spec = PUBLISHED[name]
    assert spec.tensor_parallel_sizes[0] == 1
    for size in spec.tensor_parallel_sizes[1:]:
        held = sum(
            shape.numel() * stored_dtype(parameter, torch.bfloat16).itemsize
            for parameter, shape in share_shapes(spec, size).items()
        )
        assert weight_bytes(spec, "bfloat16", size) == held


def test_int8_weights_of_a_rank_are_its_cut_matrices_with_scales_for_all_their_rows() -> None:
    spec = family_spec("sdar")
    assert weight_bytes(spec, "bfloat16", 1, "int8") == int8_bytes(
        parameter_shapes(spec), torch.bfloat16
    )
    shapes = share_shapes(spec, 2)
    assert shapes["layers.0.self_attn.o_proj.weight"] == (32, 16)
    assert weight_bytes(spec, "bfloat16", 2, "int8") == int8_bytes(shapes, torch.bfloat16)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_prefix_takes_what_was_computed_for_it(family: str) -> None:
    spec = family_spec(family)
    target = open_target(tiny_model(spec, torch.float32))
    target.open_slot(0)
    target.prefill(0, (5,) * 8)
    if spec.topology == "bidirectional":
        assert cache_bytes(spec, "float32") == 0
        return
    cache = target.caches[0]  # pyright: ignore[reportAttributeAccessIssue]
    held = [part[:, :, : cache.length] for part in (cache.keys, cache.values)]
    assert cache_bytes(spec, "float32") * 8 == 4 * sum(part.numel() for part in held)
    assert cache_bytes(spec, "bfloat16", 2) * 4 == cache_bytes(spec, "float32")


WIDE = {
    "vocabulary": (family_spec("sdar", 32, 8000), 1.0),
    "heads": (changed("sdar", block_size=32, num_heads=200, num_kv_heads=100), 0.0),
    "feed-forward": (changed("sdar", block_size=32, intermediate_size=20_000), 0.0),
    "hidden states": (changed("Fast_dLLM_Qwen", block_size=32, hidden_size=4000), 0.0),
    "experts": (changed("sdar_moe", block_size=32, hidden_size=1000), 0.0),
    "whole texts": (
        changed("llada", block_size=32, intermediate_size=1000, max_positions=1000),
        0.0,
    ),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("widest", WIDE)
def test_a_forward_stays_within_its_estimate_and_takes_a_third_of_it(
    widest: str, dtype: str
) -> None:
    """Whatever the widest part is, with the drafts judged, and drawn from with top-p."""
    spec, temperature = WIDE[widest]
    options = DecodeOptions(
        method="chain",
        budget=8,
        temperature=temperature,
        top_p=0.9 if temperature else 1.0,
        max_new_tokens=960 if spec.topology == "bidirectional" else 64,
        ignore_stop=True,
    )
    decoder = Decoder(open_target(tiny_model(spec, DTYPES[dtype])), {"chain": ChainProposer()})
    decoder.add(Request("0", (5,) * 32, options, 0))
    decoder.step()
    with LiveBytes() as live:
        decoder.step()
    estimate = forward_bytes(spec, dtype, copies=1 + 8)
    assert live.peak <= estimate <= 3 * live.peak, (live.peak, estimate)


def test_a_rank_needs_its_weights_a_prefix_and_a_forward() -> None:
    spec = PUBLISHED["SDAR-8B"]
    whole, half = need(spec, "bfloat16"), need(spec, "bfloat16", 2)
    assert whole.weights == TOTAL_SIZES["SDAR-8B"]
    assert whole.prefix == 4096 * 2 * 36 * 8 * 128 * 2 == 2 * half.prefix
    assert whole.total == whole.weights + whole.prefix + whole.forward
    assert half.weights > whole.weights // 2, "norms are on both"
    assert half.forward <= whole.forward
