"""Buckets: few sizes, never too small; packed inputs say what the batch says."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from models.buckets import (
    FIRST_PREFIX,
    PIECE,
    Bucket,
    SlotPart,
    bucket_of,
    pack_inputs,
    rounded_copies,
    rounded_prefix,
    rounded_slots,
    unpack_inputs,
)
from models.target import NO_PARENT

L = 4


@given(st.integers(1, 600))
def test_sizes_are_few_and_never_too_small(count: int) -> None:
    for rounded in (rounded_copies, rounded_slots, rounded_prefix):
        size = rounded(count)
        assert size >= count
        assert rounded(size) == size, "a size is its own bucket"
        assert rounded(count + 1) >= size
    assert rounded_copies(count) <= max(count, 1 + 1.5 * (count - 1))
    assert rounded_prefix(count) <= max(FIRST_PREFIX, 2 * count)


def test_a_root_and_the_usual_budgets_are_sizes_of_their_own() -> None:
    assert [rounded_copies(1 + d) for d in (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32)] == [
        1 + d for d in (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
    ]
    assert len({rounded_copies(n) for n in range(1, 258)}) < 20
    assert rounded_prefix(0) == 0


@pytest.mark.parametrize(
    ("slots", "parents", "stores", "kind"),
    [
        ([5], [NO_PARENT], [False], "alone"),
        ([5, 6], [NO_PARENT] * 2, [True, False], "alone"),
        ([5, 5], [NO_PARENT] * 2, [False] * 2, "drafts"),
        ([5, 5], [NO_PARENT] * 2, [True, False], "family"),
        ([5, 5], [NO_PARENT, 0], [False] * 2, "family"),
    ],
)
def test_what_copies_are_to_each_other_decides_the_kind(
    slots: list[int], parents: list[int], stores: list[bool], kind: str
) -> None:
    assert bucket_of(slots, parents, stores, 9).kind == kind


def test_packed_inputs_say_where_tokens_stand_and_what_they_meet() -> None:
    """Two slots, one behind a long prefix in two pieces; a child behind its parent; padding."""
    bucket = Bucket("family", copies=5, slots=2, prefix=2 * PIECE)
    tokens = torch.arange(4 * L).view(4, L)
    parents = [NO_PARENT, 0, NO_PARENT, NO_PARENT]
    long = PIECE + 3 * L
    parts = [SlotPart(0, 2, start=100, length=long), SlotPart(2, 4, start=9000, length=2 * L)]
    packed = pack_inputs(bucket, tokens, parents, [100 + long, 0, 0, 0], parts)
    assert packed.dtype == torch.int32
    inputs = unpack_inputs(packed, bucket, L)
    assert torch.equal(inputs.tokens_CL[:4], tokens.int())
    assert inputs.positions_CL[:, 0].tolist() == [long, long + L, 2 * L, 2 * L, 0]
    assert inputs.writes_T.view(5, L)[0].tolist() == list(range(100 + long, 100 + long + L))
    assert inputs.writes_T.view(5, L)[1].tolist() == list(range(L)), "nobody's rows"
    assert inputs.parents_C.tolist() == [0, 0, 2, 3, 4]
    assert inputs.own is not None
    assert inputs.own.used.tolist() == [L, 2 * L, L, L, L]
    prefix = inputs.prefix
    assert prefix is not None
    assert prefix.q_ends.tolist() == [0, 8, 16, 20, 28, 36, 40]
    assert prefix.k_starts[:-1].tolist() == [100, 9000, 0, 100 + PIECE, 9000 + PIECE, PIECE]
    assert prefix.used.tolist() == [PIECE, 2 * L, 0, 3 * L, 0, 0]
    assert prefix.empty_T is not None
    assert prefix.empty_T.view(2, 5, L)[:, :, 0].tolist() == [
        [False, False, False, False, True],
        [False, False, True, True, True],
    ]
