"""The benchmark of loading, at toy size: what it writes loads, and what it measures is there."""

from mmap import MAP_ANONYMOUS, MAP_PRIVATE, PAGESIZE, mmap
from pathlib import Path

import pytest

from benchmarks.full_size_load import peak_memory, read_plainly, write_random
from models.checkpoint import read_spec
from models.config import TargetConfig
from models.loading import load_model
from tests.reference.families import FAMILIES, family_spec


@pytest.mark.parametrize("family", FAMILIES)
def test_what_it_writes_loads_strictly_from_several_shards(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.full_size_load.SHARD_BYTES", 10_000)
    spec = family_spec(family)
    write_random(spec, tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    assert read_spec(tmp_path) == spec
    model = load_model(TargetConfig(path=str(tmp_path), dtype="bfloat16"))
    assert model.embed_tokens.weight.float().std() > 0
    assert read_plainly(tmp_path) > 0


def test_the_peak_is_what_was_held_at_once() -> None:
    size = 64 << 20
    # Pages of its own: an allocator may hand out what this process holds already.
    with mmap(-1, size, flags=MAP_PRIVATE | MAP_ANONYMOUS) as held, peak_memory() as peak:
        for page in range(0, size, PAGESIZE):
            held[page] = 1
    assert 0.8 * size < peak["bytes"] < 2 * size
