"""The prefix cache holds whole blocks, and nothing that was not counted in."""

import pytest
import torch

from models.cache import GROWTH, PrefixCache, capacity_for
from tests.conftest import tiny_spec

SPEC = tiny_spec()


def cache() -> PrefixCache:
    return PrefixCache(SPEC, SPEC.num_kv_heads, torch.float64, torch.device("cpu"))


def block_of(value: float, tokens: int = 4) -> torch.Tensor:
    return torch.full((tokens, SPEC.num_kv_heads, SPEC.head_dim), value, dtype=torch.float64)


def test_written_tokens_count_only_once_advanced() -> None:
    found = cache()
    found.reserve(8)
    found.write(0, block_of(1.0), block_of(2.0))
    assert found.length == 0
    assert found.view(0)[0].shape[1] == 0
    assert (found.view(0, extra=4)[0] == 1.0).all()
    found.advance(4)
    assert found.length == 4
    keys, values = found.view(0)
    assert (keys == 1.0).all()
    assert (values == 2.0).all()


def test_scratch_is_overwritten_by_the_next_write() -> None:
    found = cache()
    found.reserve(8)
    found.write(1, block_of(1.0), block_of(1.0))
    found.write(1, block_of(5.0), block_of(6.0))
    found.advance(4)
    assert (found.view(1)[0] == 5.0).all()
    assert (found.view(1)[1] == 6.0).all()


def test_growing_keeps_the_prefix() -> None:
    found = cache()
    for index in range(20):
        found.reserve(8)
        for layer in range(SPEC.num_layers):
            found.write(layer, block_of(index + layer), block_of(-index))
        found.advance(4)
    for layer in range(SPEC.num_layers):
        keys, values = found.view(layer)
        expected = torch.arange(20.0).repeat_interleave(4).double()
        assert torch.equal(keys[0, :, 0], expected + layer)
        assert torch.equal(values[1, :, 3], -expected)


def test_capacity_follows_from_what_was_asked_for_and_grows_rarely() -> None:
    found, capacities = cache(), set()
    for _ in range(64):
        found.reserve(8)
        assert found.keys.shape[2] == capacity_for(found.length + 8)
        capacities.add(found.keys.shape[2])
        found.advance(4)
    assert len(capacities) <= 64 * 4 // GROWTH + 1


@pytest.mark.parametrize("tokens", [1, 3, 5])
def test_an_unfinished_block_is_never_kept(tokens: int) -> None:
    found = cache()
    found.reserve(8)
    with pytest.raises(AssertionError, match="only full blocks are kept"):
        found.advance(tokens)
    assert found.length == 0
