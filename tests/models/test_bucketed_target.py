"""Padded forwards over a pool of prefixes equal the plain target's, whatever the batch."""

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from models import buckets
from models.bucketed_target import BucketedTarget
from models.target import NO_PARENT, CopyBatch, Target
from models.transformer import Transformer
from tests.conftest import tiny_model, tiny_spec
from tests.reference.families import family_spec
from tests.reference.running import prompt_of

L = 4
MASK = 3
CLOSE = {torch.float64: 1e-12, torch.float32: 1e-5}
GROUPED = tiny_spec()
SPECS = {
    "gqa": GROUPED,
    "mha": GROUPED.model_copy(update={"num_kv_heads": 4}),
    "mqa": GROUPED.model_copy(update={"num_kv_heads": 1}),
    "shifted": GROUPED.model_copy(update={"prediction": "shifted"}),
}
MODELS = {name: tiny_model(spec) for name, spec in SPECS.items()}


@pytest.fixture
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prefixes of a few blocks already come in pieces."""
    monkeypatch.setattr(buckets, "PIECE", 2 * L)
    monkeypatch.setattr(buckets, "FIRST_PREFIX", L)


def both(model: Transformer, prefixes: Sequence[int]) -> tuple[Target, BucketedTarget]:
    """The two targets with the same prefixes, of these many blocks, in slots 0, 1, ..."""
    plain, padded = Target(model), BucketedTarget(model)
    for slot, blocks in enumerate(prefixes):
        for target in (plain, padded):
            target.open_slot(slot)
            if blocks:
                target.prefill(slot, prompt_of(blocks * L, salt=slot))
    return plain, padded


def state(seed: int) -> list[int]:
    """A block of some tokens and some masks."""
    return [MASK if (seed >> i) & 1 else 4 + (seed * 7 + i) % 20 for i in range(L)]


def batch_of(
    groups: Sequence[tuple[int, int]], parents: Sequence[int] = (), stored: Sequence[int] = ()
) -> CopyBatch:
    """Copies of (slot, number of copies); rows leave some positions out."""
    slots = [slot for slot, count in groups for _ in range(count)]
    count = len(slots)
    return CopyBatch(
        slots,
        torch.tensor([state(5 * i + 3) for i in range(count)]),
        parents or [NO_PARENT] * count,
        [i in stored for i in range(count)],
        torch.tensor([row for row in range(count * L) if row % 5]),
    )


def check(plain: Target, padded: BucketedTarget, batch: CopyBatch) -> Tensor:
    """The logits that both agree on, and the prefixes behind them."""
    expected = plain.forward(batch)
    found = padded.forward(batch)
    atol = CLOSE[plain.model.dtype]
    torch.testing.assert_close(found, expected, rtol=0, atol=atol)
    for slot, cache in plain.caches.items():
        assert padded.caches[slot].length == cache.length
        for layer in range(plain.spec.num_layers):
            for one, other in zip(cache.view(layer), padded.caches[slot].view(layer), strict=True):
                torch.testing.assert_close(other, one, rtol=0, atol=atol)
    return found


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("prefix", [0, 1, 3])
def test_every_kind_of_batch_equals_the_plain_target(name: str, prefix: int) -> None:
    plain, padded = both(MODELS[name], [prefix])
    check(plain, padded, batch_of([(0, 1)]))
    check(plain, padded, batch_of([(0, 6)]))
    check(plain, padded, batch_of([(0, 2)], [NO_PARENT, 0], stored=[0]))
    check(plain, padded, batch_of([(0, 1)], stored=[0]))
    check(plain, padded, batch_of([(0, 3)], stored=[1]))
    check(plain, padded, batch_of([(0, 3)]))


@pytest.mark.usefixtures("short_pieces")
@pytest.mark.parametrize("prefix", [1, 2, 3, 4, 5, 8, 9])
def test_long_prefixes_in_pieces_equal_the_plain_target(prefix: int) -> None:
    plain, padded = both(MODELS["gqa"], [prefix, 1, 0])
    check(plain, padded, batch_of([(0, 1)]))
    check(plain, padded, batch_of([(0, 1), (1, 1), (2, 1)]))
    check(plain, padded, batch_of([(0, 2), (2, 3), (1, 1)]))


def test_any_copy_of_the_slot_may_be_a_parent_and_of_many() -> None:
    """Full blocks and drafts as parents, side by side, of which none is stored."""
    plain, padded = both(MODELS["gqa"], [2, 1])
    parents = [NO_PARENT, NO_PARENT, 0, 1, 1, NO_PARENT, NO_PARENT, 6, 6, 5]
    check(plain, padded, batch_of([(0, 5), (1, 5)], parents))


def test_parents_that_are_not_stored_leave_their_keys_behind_the_prefix() -> None:
    """As scratch, one block after the other behind the place of a stored one."""
    plain, padded = both(MODELS["gqa"], [2])
    parents = [NO_PARENT, NO_PARENT, NO_PARENT, 0, 1, 2]
    batch = batch_of([(0, 6)], parents, stored=[0])
    padded.forward(batch)
    for place, copy in enumerate((1, 2), start=1):
        (alone,) = both(MODELS["gqa"], [2])[:1]
        one = CopyBatch([0], batch.tokens_CL[copy : copy + 1], [NO_PARENT], [True], batch.rows[:1])
        alone.forward(one)
        for layer in range(plain.spec.num_layers):
            kept = padded.caches[0].view(layer, extra=2 * L)
            for ours, expected in zip(kept, alone.caches[0].view(layer), strict=True):
                first = (2 + place) * L
                torch.testing.assert_close(
                    ours[:, first : first + L], expected[:, 2 * L :], rtol=0, atol=1e-12
                )


@pytest.mark.parametrize("dtype", CLOSE, ids=str)
def test_slots_of_different_prefixes_store_on_the_way(dtype: torch.dtype) -> None:
    plain, padded = both(tiny_model(dtype=dtype), [1, 0, 3])
    parents = [NO_PARENT, NO_PARENT, NO_PARENT, NO_PARENT, 3, 3]
    check(plain, padded, batch_of([(0, 2), (1, 1), (2, 3)], parents, stored=[2, 3]))
    check(plain, padded, batch_of([(2, 2), (0, 1), (1, 4)]))


@settings(max_examples=25, deadline=None)
@given(
    prefixes=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    counts=st.lists(st.integers(1, 5), min_size=4, max_size=4),
    seed=st.integers(0, 2**16),
)
def test_random_batches_equal_the_plain_target(
    prefixes: list[int], counts: list[int], seed: int
) -> None:
    plain, padded = both(MODELS["gqa"], prefixes)
    groups, parents, stored = [], [], []
    for slot, count in zip(range(len(prefixes)), counts, strict=False):
        first = len(parents)
        has_parent = seed >> slot & 1
        groups.append((slot, count))
        parents += [NO_PARENT] + [first if has_parent else NO_PARENT] * (count - 1)
        stored += [first] if has_parent else []
    check(plain, padded, batch_of(groups, parents, stored))
    check(plain, padded, batch_of(groups[::-1]))


def test_prefill_in_parts_and_a_run_that_outgrows_its_room_keep_the_prefix() -> None:
    plain, padded = both(MODELS["gqa"], [1, 1])
    for blocks in (5, 1, 40):
        for target in (plain, padded):
            target.prefill(0, prompt_of(blocks * L, salt=blocks))
        check(plain, padded, batch_of([(1, 1), (0, 2)]))
    assert padded.caches[0].start > padded.caches[1].start


def test_a_closed_slot_leaves_its_rows_to_the_next_one() -> None:
    plain, padded = both(MODELS["gqa"], [3, 2])
    start = padded.caches[0].start
    for target in (plain, padded):
        target.close_slot(0)
        target.open_slot(7)
        target.prefill(7, prompt_of(2 * L, salt=9))
    assert padded.caches[7].start == start
    assert padded.open_slots == (1, 7)
    check(plain, padded, batch_of([(1, 2), (7, 2)]))


def test_memory_that_grows_keeps_every_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.pool.FIRST_ROWS", 1)
    plain, padded = both(MODELS["gqa"], [1, 6])
    moves = padded.pool.moves
    for target in (plain, padded):
        target.open_slot(2, length=100)
    assert padded.pool.moves > moves
    check(plain, padded, batch_of([(0, 2), (1, 1), (2, 1)]))


@pytest.mark.parametrize("block", [1, 2, 8])
def test_other_block_sizes_equal_the_plain_target(block: int) -> None:
    model = tiny_model(tiny_spec(block))
    plain, padded = Target(model), BucketedTarget(model)
    for target in (plain, padded):
        target.open_slot(0)
        target.prefill(0, prompt_of(3 * block))
    for copies in (1, 3):
        tokens = torch.tensor([[MASK] * (block - 1) + [7 + i] for i in range(copies)])
        rows = torch.arange(copies * block)
        batch = CopyBatch([0] * copies, tokens, [NO_PARENT] * copies, [False] * copies, rows)
        torch.testing.assert_close(padded.forward(batch), plain.forward(batch), rtol=0, atol=1e-12)


def test_misuse_is_noticed_as_in_the_plain_target() -> None:
    _, padded = both(MODELS["gqa"], [1, 1])
    with pytest.raises(AssertionError, match="slot 0 is in use"):
        padded.open_slot(0)
    with pytest.raises(AssertionError, match="only full blocks are prefilled"):
        padded.prefill(0, prompt_of(3))
    with pytest.raises(AssertionError, match="stand together"):
        padded.forward(batch_of([(0, 1), (1, 1), (0, 1)]))


def test_bfloat16_is_near_and_gives_wide_logits() -> None:
    plain, _ = both(MODELS["gqa"], [3])
    _, narrow = both(tiny_model(dtype=torch.bfloat16), [3])
    batch = batch_of([(0, 4)])
    found = narrow.forward(batch)
    assert found.dtype == torch.float32
    assert (found - plain.forward(batch)).abs().max() < 0.1


def test_experts_run_padded_too() -> None:
    plain, padded = both(tiny_model(family_spec("sdar_moe")), [2])
    check(plain, padded, batch_of([(0, 5)]))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_replayed_graphs_equal_the_plain_target_on_a_gpu(dtype: torch.dtype) -> None:
    """Twice each: the first forward of a bucket captures, the second replays."""
    model = tiny_model(dtype=dtype).cuda()
    plain, captured = Target(model), BucketedTarget(model, captures=True)
    for target in (plain, captured):
        target.open_slot(0)
        target.prefill(0, prompt_of(3 * L))
    batches = [batch_of([(0, 1)]), batch_of([(0, 6)]), batch_of([(0, 2)], [NO_PARENT, 0], [0])]
    for batch in [*batches, *batches]:
        found, expected = captured.forward(batch), plain.forward(batch)
        atol = 0.1 if dtype == torch.bfloat16 else 1e-4
        torch.testing.assert_close(found, expected, rtol=0, atol=atol)
        assert captured.caches[0].length == plain.caches[0].length
