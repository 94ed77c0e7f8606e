"""The floors of a forward count the weights that the network really has, and what it does."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.gpu.floors import (
    Floors,
    Speeds,
    floors_of,
    forward_bytes,
    forward_flops,
    layer_weights,
    measure_speeds,
)
from benchmarks.gpu.plan import GpuPlan
from models.target import NO_PARENT, CopyBatch, Target
from tests.conftest import tiny_model, tiny_spec
from tests.reference.families import family_spec

SPEC = tiny_spec()


@pytest.mark.parametrize("family", ["sdar", "sdar_moe", "llada2_moe"])
def test_weights_of_the_layers_are_those_of_the_network(family: str) -> None:
    model = tiny_model(family_spec(family))
    outside = ("embed_tokens", "lm_head", "norm.")
    whole = sum(p.numel() for n, p in model.named_parameters() if not n.startswith(outside))
    assert layer_weights(model.spec) == pytest.approx(whole, rel=0.01)
    assert (layer_weights(model.spec, per_token=True) < whole) == (family != "sdar")


def test_operations_are_those_that_a_forward_does() -> None:
    """Counted by torch; norms and rotations, which it does not count, are in neither."""
    target, block, copies, prefix = Target(tiny_model()), SPEC.block_size, 3, 8
    target.open_slot(0)
    target.prefill(0, (5,) * prefix)
    tokens = torch.full((copies, block), SPEC.mask_token_id)
    batch = CopyBatch([0] * copies, tokens, [NO_PARENT] * copies, [False] * copies, torch.arange(5))
    with FlopCounterMode(display=False) as counter:
        target.forward(batch)
    attention = 4 * SPEC.num_layers * SPEC.num_heads * SPEC.head_dim
    attention *= (prefix + block) * copies * block
    counted = counter.get_total_flops()
    expected = forward_flops(SPEC, copies * block, 5, prefix)
    assert counted == pytest.approx(expected - attention, rel=0.02) or counted == pytest.approx(
        expected, rel=0.02
    ), "with attention where its kernel is counted, else without"


def test_bytes_grow_with_the_prefix_by_its_keys_and_values() -> None:
    more = forward_bytes(SPEC, 100, 2) - forward_bytes(SPEC, 0, 2)
    assert more == 100 * 2 * 2 * SPEC.num_layers * SPEC.num_kv_heads * SPEC.head_dim


def test_the_larger_floor_counts() -> None:
    speeds = Speeds(bytes_per_second=1e9, flops_per_second=1e9)
    small, large = (floors_of(SPEC, speeds, copies, copies, 0, "bfloat16") for copies in (1, 99))
    assert small.memory == large.memory
    assert small.compute < large.compute
    assert Floors(1.0, 3.0).larger == 3.0


def test_stated_speeds_are_not_measured() -> None:
    plan = GpuPlan(size="toy", device="cpu", dtype="float32", bandwidth=2e12, repeats=1)
    speeds = measure_speeds(plan)
    assert speeds.bytes_per_second == 2e12
    assert speeds.flops_per_second > 0
    assert speeds.stated == ("bandwidth",)
