"""Attention by parts equals attention under an explicit mask, element by element."""

import pytest
import torch
from torch import Tensor

from models.attention import (
    attend_behind,
    attend_masked,
    attend_part,
    attend_part_reference,
    fold_groups,
    merge_parts,
    unfold_groups,
)
from tests.reference.attention import attention

CLOSE = {torch.float64: 1e-12, torch.float32: 2e-6}
DTYPES = [torch.float64, torch.float32]
HEADS = [(4, 4), (4, 2), (6, 1)]
E = 8


def rows(tokens: int, heads: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(tokens, heads, E, generator=generator, dtype=dtype)


def by_parts(q: Tensor, parts: list[tuple[Tensor, Tensor]]) -> Tensor:
    """One block's queries over several runs of keys, merged."""
    folded = fold_groups(q.unsqueeze(0), parts[0][0].shape[1])
    found = [
        attend_part(folded, k.transpose(0, 1).unsqueeze(0), v.transpose(0, 1).unsqueeze(0))
        for k, v in parts
    ]
    return unfold_groups(merge_parts(found), q.shape[0]).squeeze(0)


@pytest.mark.parametrize("sizes", [(5,), (9, 4), (12, 4, 4), (1, 1, 1, 1)], ids=str)
@pytest.mark.parametrize("heads", HEADS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_merged_parts_equal_the_element_wise_reference(
    dtype: torch.dtype, heads: tuple[int, int], sizes: tuple[int, ...]
) -> None:
    q = rows(4, heads[0], 0, dtype)
    parts = [
        (rows(n, heads[1], 10 + i, dtype), rows(n, heads[1], 20 + i, dtype))
        for i, n in enumerate(sizes)
    ]
    k, v = (torch.cat(side) for side in zip(*parts, strict=True))
    expected = attention(q.tolist(), k.tolist(), v.tolist(), lambda i, j: True)
    torch.testing.assert_close(
        by_parts(q, parts), torch.tensor(expected, dtype=dtype), rtol=0, atol=CLOSE[dtype]
    )


@pytest.mark.parametrize(("copies", "before"), [(1, 0), (1, 5), (3, 0), (3, 5)])
@pytest.mark.parametrize("heads", HEADS, ids=str)
def test_copies_behind_a_shared_prefix_equal_the_element_wise_reference(
    heads: tuple[int, int], copies: int, before: int
) -> None:
    q, k, v = (
        torch.stack([rows(4, heads[side > 0], 10 * side + copy) for copy in range(copies)])
        for side in range(3)
    )
    keys, values = rows(before, heads[1], 30), rows(before, heads[1], 40)
    prefix = keys.transpose(0, 1), values.transpose(0, 1)
    found = attend_behind(q, prefix[0], prefix[1], k.transpose(1, 2), v.transpose(1, 2))
    for copy in range(copies):
        seen = torch.cat((keys, k[copy])), torch.cat((values, v[copy]))
        rows_seen = seen[0].tolist(), seen[1].tolist()
        naive = attention(q[copy].tolist(), rows_seen[0], rows_seen[1], lambda i, j: True)
        expected = torch.tensor(naive, dtype=torch.float64)
        torch.testing.assert_close(found[copy], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("heads", HEADS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_masked_attention_equals_the_element_wise_reference(
    dtype: torch.dtype, heads: tuple[int, int]
) -> None:
    q, k, v = (rows(10, h, i, dtype) for i, h in enumerate((heads[0], heads[1], heads[1])))
    mask = torch.tensor([[i // 4 >= j // 4 for j in range(10)] for i in range(10)])
    found = attend_masked(q, k.transpose(0, 1), v.transpose(0, 1), mask)
    expected = attention(q.tolist(), k.tolist(), v.tolist(), lambda i, j: i // 4 >= j // 4)
    torch.testing.assert_close(
        found, torch.tensor(expected, dtype=dtype), rtol=0, atol=CLOSE[dtype]
    )


def test_a_mask_of_numbers_that_would_be_added_is_refused() -> None:
    q, k, v = rows(3, 4, 0), rows(7, 2, 1), rows(7, 2, 2)
    with pytest.raises(AssertionError, match="boolean"):
        attend_masked(q, k.transpose(0, 1), v.transpose(0, 1), torch.ones(3, 7))


def test_masked_attention_without_a_mask_sees_everything() -> None:
    q, k, v = rows(3, 4, 0), rows(7, 2, 1), rows(7, 2, 2)
    found = attend_masked(q, k.transpose(0, 1), v.transpose(0, 1), None)
    expected = attention(q.tolist(), k.tolist(), v.tolist(), lambda i, j: True)
    expected = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_fast_part_equals_the_plain_one(dtype: torch.dtype) -> None:
    q, k, v = (rows(6, 3, i, dtype).transpose(0, 1).unsqueeze(0) for i in range(3))
    for fast, plain in zip(attend_part(q, k, v), attend_part_reference(q, k, v), strict=True):
        torch.testing.assert_close(fast, plain, rtol=0, atol=CLOSE[dtype])


def test_the_plain_part_of_half_precision_rounds_its_output_alone() -> None:
    q, k, v = (rows(300, 1, i, torch.bfloat16).transpose(0, 1).unsqueeze(0) for i in range(3))
    out, lse = attend_part_reference(8 * q, k, v)
    expected, exact = attend_part_reference(8 * q.double(), k.double(), v.double())
    torch.testing.assert_close(out, expected.to(torch.bfloat16), rtol=2**-7, atol=1e-6)
    torch.testing.assert_close(lse.double(), exact, rtol=0, atol=1e-5)


def test_parts_merge_in_any_order_and_grouping() -> None:
    q = fold_groups(rows(4, 4, 0).unsqueeze(0), 2)
    parts = [
        attend_part(q, *(rows(n, 2, n + i).transpose(0, 1).unsqueeze(0) for i in (0, 50)))
        for n in (3, 5, 8)
    ]
    whole = merge_parts(parts)
    torch.testing.assert_close(merge_parts(parts[::-1]), whole, rtol=0, atol=1e-13)
    pair = merge_parts(parts[:2]), torch.logaddexp(parts[0][1], parts[1][1])
    torch.testing.assert_close(merge_parts([pair, parts[2]]), whole, rtol=0, atol=1e-13)


def test_a_part_of_far_larger_scores_wins_without_overflow() -> None:
    q = torch.full((1, 1, 1, E), 30.0)
    loud = torch.full((1, 1, 2, E), 30.0)
    parts = [attend_part(q, sign * loud, sign * loud) for sign in (1.0, -1.0)]
    assert torch.equal(merge_parts(parts), parts[0][0])


@pytest.mark.parametrize("heads", HEADS, ids=str)
def test_folding_groups_is_undone_by_unfolding(heads: tuple[int, int]) -> None:
    q = rows(5, heads[0], 3).unsqueeze(0).expand(3, -1, -1, -1)
    folded = fold_groups(q, heads[1])
    assert folded.shape == (3, heads[1], 5 * heads[0] // heads[1], E)
    assert torch.equal(unfold_groups(folded, 5), q)
