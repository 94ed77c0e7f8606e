"""The prefix cache is sized once, from what is free, and never beyond it."""

import pytest

from models.cache_size import DRAFTS, TIMES, cache_size
from models.config import TargetConfig
from models.devices import Device
from models.footprint import cache_bytes, forward_bytes, layer_bytes
from models.target import PREFILL_TOKENS
from tests.conftest import tiny_spec
from tests.reference.families import family_spec

SPEC = tiny_spec()
CONFIG = TargetConfig(path="tiny", forwards="plain")
TOKEN = cache_bytes(SPEC, "float32")


def device(name: str, tokens: int, max_batch: int, ranks: int = 1) -> Device:
    """One with room for ``tokens`` beside a forward of the batch or a prefill, on each rank."""
    forward = forward_bytes(SPEC, "float32", ranks, max_batch * (1 + DRAFTS))
    prefill = layer_bytes(SPEC, "float32", ranks, PREFILL_TOKENS)
    free = max(forward, prefill) + tokens * cache_bytes(SPEC, "float32", ranks)
    return Device(name, name, free, 2 * free)


def test_a_part_of_what_is_free_beside_a_forward_becomes_cache() -> None:
    large = SPEC.model_copy(update={"max_positions": 10**9})
    on_gpu = cache_size(large, CONFIG, device("cuda:0", 200_000, 4), 4, None)
    assert on_gpu == pytest.approx(180_000, rel=0.01)
    on_cpu = cache_size(large, CONFIG, device("cpu", 200_000, 4), 4, None)
    assert on_cpu == pytest.approx(100_000, rel=0.01)


def test_no_more_is_taken_than_a_few_full_batches_could_use() -> None:
    found = cache_size(SPEC, CONFIG, device("cuda:0", 10**9, 4), 4, None)
    assert found == TIMES * 4 * SPEC.max_positions


def test_what_is_asked_for_is_given_as_long_as_it_fits() -> None:
    here = device("cuda:0", 20_000, 4)
    assert cache_size(SPEC, CONFIG, here, 4, 5_000) == 5_000
    with pytest.raises(ValueError, match=r"max_cache_tokens 30000 takes .* cuda:0 has room for 1"):
        cache_size(SPEC, CONFIG, here, 4, 30_000)
    forced = CONFIG.model_copy(update={"force_fit": True})
    assert cache_size(SPEC, forced, here, 4, 30_000) == 30_000


def test_ranks_share_the_memory_of_one_machine_and_not_that_of_gpus() -> None:
    split = CONFIG.model_copy(update={"tp": 2})
    gpu, cpu = (device(name, 20_000, 1, ranks=2) for name in ("cuda:0", "cpu"))
    assert cache_size(SPEC, split, gpu, 1, 17_000) == 17_000
    with pytest.raises(ValueError, match="max_cache_tokens 17000"):
        cache_size(SPEC, split, cpu, 1, 17_000)


def test_a_pool_has_room_to_double() -> None:
    """What is asked for fits three times: as the pool was, and as it is then."""
    pooled = CONFIG.model_copy(update={"forwards": "auto"})
    assert cache_size(SPEC, pooled, device("cuda:0", 20_000, 1), 1, 6_000) == 6_000
    with pytest.raises(ValueError, match=r"max_cache_tokens 6001 takes .* at its peak"):
        cache_size(SPEC, pooled, device("cuda:0", 20_000, 1), 1, 6_001)
    assert cache_size(SPEC, pooled, device("cpu", 20_000, 1), 1, 9_000) == 9_000


def test_a_bidirectional_target_has_none() -> None:
    spec = family_spec("llada")
    assert cache_size(spec, CONFIG, device("cpu", 99, 1), 1, None) is None
    with pytest.raises(ValueError, match="max_cache_tokens 64: a bidirectional target"):
        cache_size(spec, CONFIG, device("cpu", 99, 1), 1, 64)
