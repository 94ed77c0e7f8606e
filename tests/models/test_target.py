"""The cached, batched forwards equal one plain forward over the whole sequence."""

import pytest
import torch
from torch import Tensor

from models.bucketed_target import BucketedTarget
from models.spec import TargetSpec
from models.target import NO_PARENT, CopyBatch, Target
from models.transformer import Transformer
from tests.conftest import tiny_model, tiny_spec
from tests.reference.network import reference_logits
from tests.reference.running import prompt_of

L = 4
MASK = 3
CLOSE = {torch.float64: 1e-12, torch.float32: 1e-5}
DTYPES = [torch.float64, torch.float32]
GROUPED = tiny_spec()
UNGROUPED = GROUPED.model_copy(update={"num_kv_heads": 4})
ONE_KEY_HEAD = GROUPED.model_copy(update={"num_kv_heads": 1})
DRAFTS = [[MASK, MASK, MASK, MASK], [9, MASK, MASK, MASK], [9, MASK, 8, MASK], [9, 7, 8, 6]]


def copies(
    slots: list[int], states: list[list[int]], parents: list[int] | None = None, stored: int = 0
) -> CopyBatch:
    """A batch that asks for every row; its first ``stored`` copies are stored."""
    count = len(states)
    return CopyBatch(
        slots,
        torch.tensor(states),
        parents or [NO_PARENT] * count,
        [index < stored for index in range(count)],
        torch.arange(count * L),
    )


def opened(model: Transformer, *prefixes: tuple[int, ...]) -> Target:
    """A target whose slot i holds prefix i."""
    target = Target(model)
    for slot, prefix in enumerate(prefixes):
        target.open_slot(slot)
        if prefix:
            target.prefill(slot, prefix)
    return target


def plain(model: Transformer, *tokens: int) -> Tensor:
    """The last block's logits of an uncached forward."""
    return reference_logits(model, tokens)[-L:].to(model.dtype)


def check(found: Tensor, expected: list[Tensor]) -> None:
    dtype = expected[0].dtype
    torch.testing.assert_close(found, torch.cat(expected), rtol=0, atol=CLOSE[dtype])


@pytest.mark.parametrize("prefix", [0, L, 3 * L])
@pytest.mark.parametrize("spec", [GROUPED, UNGROUPED, ONE_KEY_HEAD], ids=["gqa", "mha", "mqa"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_root_and_drafts_equal_a_forward_each(
    dtype: torch.dtype, spec: TargetSpec, prefix: int
) -> None:
    model, known = tiny_model(spec, dtype), prompt_of(prefix)
    found = opened(model, known).forward(copies([0] * 4, DRAFTS))
    check(found, [plain(model, *known, *draft) for draft in DRAFTS])


@pytest.mark.parametrize("prefix", [0, L, 3 * L])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_single_copy_equals_the_same_copy_among_drafts(dtype: torch.dtype, prefix: int) -> None:
    model, known = tiny_model(dtype=dtype), prompt_of(prefix)
    for draft in DRAFTS:
        check(opened(model, known).forward(copies([0], [draft])), [plain(model, *known, *draft)])


@pytest.mark.parametrize("prefix", [0, L, 3 * L])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_copy_behind_a_parent_sees_prefix_parent_and_itself(
    dtype: torch.dtype, prefix: int
) -> None:
    """Two parents side by side, each with children, of which none is stored."""
    model, known = tiny_model(dtype=dtype), prompt_of(prefix)
    states = [[9, 7, 8, 6], [4, 5, 6, 7], [MASK] * 4, [MASK, 9, MASK, 4], [MASK, 9, MASK, 4]]
    parents = [NO_PARENT, NO_PARENT, 0, 0, 1]
    found = opened(model, known).forward(copies([0] * 5, states, parents))
    check(
        found,
        [
            plain(model, *known, *(states[parent] if parent >= 0 else []), *state)
            for state, parent in zip(states, parents, strict=True)
        ],
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_fused_store_equals_a_separate_store(dtype: torch.dtype) -> None:
    model, known, full = tiny_model(dtype=dtype), prompt_of(2 * L), [9, 7, 8, 6]
    fused, apart = opened(model, known), opened(model, known)
    first = fused.forward(copies([0, 0], [full, DRAFTS[0]], [NO_PARENT, 0], stored=1))
    apart.forward(copies([0], [full], stored=1))
    second = apart.forward(copies([0], [DRAFTS[0]]))
    torch.testing.assert_close(first[L:], second, rtol=0, atol=CLOSE[dtype])
    assert fused.caches[0].length == apart.caches[0].length == 3 * L
    for layer in range(model.spec.num_layers):
        for kept, other in zip(
            fused.caches[0].view(layer), apart.caches[0].view(layer), strict=True
        ):
            torch.testing.assert_close(kept, other, rtol=0, atol=CLOSE[dtype])
    check(
        fused.forward(copies([0, 0], DRAFTS[1:3])),
        [plain(model, *known, *full, *d) for d in DRAFTS[1:3]],
    )


@pytest.mark.parametrize("kind", [Target, BucketedTarget])
@pytest.mark.parametrize("prediction", ["same", "shifted"])
@pytest.mark.parametrize("prefix", [0, 2 * L])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_an_adopted_copy_equals_a_separate_store(
    dtype: torch.dtype, prefix: int, prediction: str, kind: type[Target]
) -> None:
    """Of several full copies with next blocks behind them, each could have been the one."""
    spec = GROUPED.model_copy(update={"prediction": prediction})
    model, known = tiny_model(spec, dtype), prompt_of(prefix)
    full = [[9, 7, 8, 6], [9, 7, 8, 5], [4, 7, 8, 6]]
    states = [DRAFTS[2], *full, DRAFTS[0], DRAFTS[1], DRAFTS[0]]
    batch = copies([0] * 7, states, [NO_PARENT] * 4 + [3, 3, 1])
    assert batch.offered() == {0: [1, 3]}
    for index, adopted in enumerate([full[0], full[2]]):
        rode, apart = kind(model), opened(model, known)
        rode.open_slot(0)
        rode.prefill(0, known)
        rode.forward(batch)
        assert rode.caches[0].length == prefix
        rode.forward(copies([0], [DRAFTS[1]]))  # one that offers nothing takes nothing back
        rode.adopt(0, index)
        apart.forward(copies([0], [adopted], stored=1))
        assert rode.caches[0].length == apart.caches[0].length == prefix + L
        for layer in range(model.spec.num_layers):
            for kept, other in zip(
                rode.caches[0].view(layer), apart.caches[0].view(layer), strict=True
            ):
                torch.testing.assert_close(kept, other, rtol=0, atol=CLOSE[dtype])
        check(rode.forward(copies([0], [DRAFTS[1]])), [plain(model, *known, *adopted, *DRAFTS[1])])


def test_a_slot_is_offered_only_its_own_copies_and_only_the_latest() -> None:
    """Two slots offer in one forward; one of them again in the next, more than before."""
    model, full = tiny_model(), [[9, 7, 8, 6], [4, 5, 6, 7], [5, 5, 6, 8]]
    target = opened(model, prompt_of(L), ())
    both = [full[0], DRAFTS[0], full[1], DRAFTS[0]]
    target.forward(copies([0, 0, 1, 1], both, [NO_PARENT, 0, NO_PARENT, 2]))
    again = [full[2], full[1], full[0], DRAFTS[0], DRAFTS[0], DRAFTS[0]]
    target.forward(copies([0] * 6, again, [NO_PARENT] * 3 + [0, 1, 2]))
    target.adopt(0, 2)
    target.adopt(1, 0)
    check(
        target.forward(copies([0, 1], [DRAFTS[1], DRAFTS[2]])),
        [plain(model, *prompt_of(L), *full[0], *DRAFTS[1]), plain(model, *full[1], *DRAFTS[2])],
    )
    with pytest.raises(IndexError):
        target.adopt(0, 0)


def test_a_parent_of_a_parent_is_refused() -> None:
    target = opened(tiny_model(), prompt_of(L))
    with pytest.raises(AssertionError, match="right behind the prefix"):
        target.forward(copies([0] * 3, DRAFTS[:3], [NO_PARENT, 0, 1]))


def test_only_stored_copies_become_part_of_the_prefix() -> None:
    target = opened(tiny_model(), prompt_of(L))
    for states, stored, length in [(DRAFTS[:1], 0, L), (DRAFTS, 0, L), ([DRAFTS[3]], 1, 2 * L)]:
        target.forward(copies([0] * len(states), states, stored=stored))
        assert target.caches[0].length == length


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_slots_share_a_forward_without_seeing_each_other(dtype: torch.dtype) -> None:
    """Prefixes of different lengths, one of them empty; one slot stores on the way."""
    model = tiny_model(dtype=dtype)
    prefixes = [prompt_of(L), (), prompt_of(3 * L, salt=1)]
    target = opened(model, *prefixes)
    states = [DRAFTS[0], DRAFTS[1], DRAFTS[2], [5, 6, 7, 8], DRAFTS[0], DRAFTS[2]]
    batch = CopyBatch(
        [0, 0, 1, 2, 2, 2],
        torch.tensor(states),
        [NO_PARENT, NO_PARENT, NO_PARENT, NO_PARENT, 3, 3],
        [False, False, False, True, False, False],
        torch.arange(6 * L),
    )
    behind = [[], [], [], [], states[3], states[3]]
    check(
        target.forward(batch),
        [
            plain(model, *prefixes[slot], *before, *state)
            for slot, before, state in zip(batch.slots, behind, states, strict=True)
        ],
    )
    assert [target.caches[slot].length for slot in range(3)] == [L, 0, 4 * L]


def test_copies_of_one_slot_must_stand_together() -> None:
    target = opened(tiny_model(), (), ())
    with pytest.raises(AssertionError, match="stand together"):
        target.forward(copies([0, 1, 0], DRAFTS[:3]))


def test_only_the_rows_asked_for_get_logits() -> None:
    target = opened(tiny_model(), prompt_of(L))
    every = target.forward(copies([0, 0], DRAFTS[1:3]))
    asked = torch.tensor([1, 2, 3, 5, 7])
    batch = CopyBatch([0, 0], torch.tensor(DRAFTS[1:3]), [NO_PARENT] * 2, [False] * 2, asked)
    torch.testing.assert_close(target.forward(batch), every[asked], rtol=0, atol=1e-14)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_prefill_may_be_split_at_any_block(dtype: torch.dtype) -> None:
    model, known = tiny_model(dtype=dtype), prompt_of(5 * L)
    expected = [plain(model, *known, *DRAFTS[1])]
    for splits in [(), (1,), (2,), (3,), (4,), (1, 2), (1, 2, 3, 4)]:
        target = opened(model, ())
        for first, last in zip((0, *splits), (*splits, 5), strict=True):
            target.prefill(0, known[first * L : last * L])
        assert target.caches[0].length == 5 * L
        check(target.forward(copies([0], [DRAFTS[1]])), expected)


def test_blocks_decoded_one_by_one_equal_a_prefill_of_all() -> None:
    model, known = tiny_model(), prompt_of(5 * L)
    stored = opened(model, known[:L])
    for first in range(L, 5 * L, L):
        stored.forward(copies([0], [list(known[first : first + L])], stored=1))
    whole = opened(model, known)
    for layer in range(model.spec.num_layers):
        for one, other in zip(
            stored.caches[0].view(layer), whole.caches[0].view(layer), strict=True
        ):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_an_unfinished_block_is_not_prefilled() -> None:
    with pytest.raises(AssertionError, match="only full blocks are prefilled"):
        opened(tiny_model(), prompt_of(5))


def test_a_change_in_a_block_never_alters_earlier_blocks_but_the_rest_of_its_own() -> None:
    """Seen in the deepest layer's keys, which depend on everything that a token attends to."""
    model, known = tiny_model(), list(prompt_of(4 * L))
    last = model.spec.num_layers - 1
    before = opened(model, tuple(known)).caches[0].view(last)[0]
    for position in (5, 11, 15):
        changed = known.copy()
        changed[position] = 4 + (known[position] - 3) % 20
        after = opened(model, tuple(changed)).caches[0].view(last)[0]
        start = position // L * L
        torch.testing.assert_close(after[:, :start], before[:, :start], rtol=0, atol=1e-14)
        assert ((after - before)[:, start:].abs().amax(dim=(0, 2)) > 1e-9).all()


def test_a_slot_is_freed_and_may_be_opened_again() -> None:
    model = tiny_model()
    target = opened(model, prompt_of(2 * L))
    with pytest.raises(AssertionError, match="slot 0 is in use"):
        target.open_slot(0)
    target.close_slot(0)
    assert not target.caches
    target.open_slot(0)
    check(target.forward(copies([0], [DRAFTS[1]])), [plain(model, *DRAFTS[1])])


@pytest.mark.parametrize("block", [1, 2, 8, 16])
def test_other_block_sizes_equal_the_plain_forward(block: int) -> None:
    model = tiny_model(tiny_spec(block))
    known, state = prompt_of(2 * block), [MASK] * (block - 1) + [7]
    target = opened(model, known)
    rows = torch.arange(2 * block)
    batch = CopyBatch([0, 0], torch.tensor([state] * 2), [NO_PARENT] * 2, [False] * 2, rows)
    expected = reference_logits(model, (*known, *state))[-block:]
    torch.testing.assert_close(target.forward(batch), expected.repeat(2, 1), rtol=0, atol=1e-12)


def test_bfloat16_is_near_and_gives_wide_logits() -> None:
    wide, narrow = tiny_model(), tiny_model(dtype=torch.bfloat16)
    known = prompt_of(3 * L)
    found = opened(narrow, known).forward(copies([0] * 4, DRAFTS))
    assert found.dtype == torch.float32
    expected = torch.cat([plain(wide, *known, *draft) for draft in DRAFTS])
    assert (found - expected).abs().max() < 0.1
