"""Packed problems of different lengths are attended to as each alone, element by element."""

import pytest
import torch
from torch import Tensor

from models.ragged import Problems, attend_ragged, attend_ragged_reference, merge_packed
from tests.reference.attention import attention

CLOSE = {torch.float64: 1e-12, torch.float32: 2e-6}
RUNS = [(3, 7, 4), (1, 0, 2), (2, 7, 4), (4, 2, 0)]
"""Queries, first key and keys of each problem: shared, out of order, and one without keys."""


def problems_of(runs: list[tuple[int, int, int]]) -> Problems:
    ends = torch.tensor([0, *(count for count, _, _ in runs)]).cumsum(0)
    starts = torch.tensor([*(start for _, start, _ in runs), 0])
    used = torch.tensor([keys for _, _, keys in runs])
    empty = torch.tensor([keys == 0 for count, _, keys in runs for _ in range(count)])
    return Problems(ends.int(), starts.int(), used.int(), empty, max_q=5, max_k=6)


def rows(count: int, heads: int, seed: int, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, heads, 8, generator=generator, dtype=dtype)


@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (6, 1)], ids=str)
@pytest.mark.parametrize("dtype", CLOSE, ids=str)
def test_every_problem_is_attended_to_as_alone(dtype: torch.dtype, heads: tuple[int, int]) -> None:
    q, k, v = (rows(n, h, n, dtype) for n, h in ((10, heads[0]), (12, heads[1]), (13, heads[1])))
    v = v[:12]
    k[11], v[11] = torch.nan, torch.nan  # what nobody wrote yet
    out, lse = attend_ragged_reference(q, k, v, problems_of(RUNS))
    first = 0
    for count, start, keys in RUNS:
        mine = slice(first, first + count)
        first += count
        if not keys:
            assert (lse[mine] == -torch.inf).all()
            assert (out[mine] == 0).all()
            continue
        own = k[start : start + keys], v[start : start + keys]
        expected = attention(q[mine].tolist(), own[0].tolist(), own[1].tolist(), lambda i, j: True)
        torch.testing.assert_close(
            out[mine], torch.tensor(expected, dtype=dtype), rtol=0, atol=CLOSE[dtype]
        )


def test_parts_of_a_problem_merge_to_the_whole() -> None:
    q, k, v = (rows(n, 2, n, torch.float64) for n in (4, 9, 10))
    v = v[:9]
    whole, _ = attend_ragged(q, k, v, problems_of([(4, 2, 6)]))
    parts = [
        attend_ragged(q, k, v, problems_of([(4, start, keys)]))
        for start, keys in ((2, 1), (3, 5), (0, 0))
    ]
    torch.testing.assert_close(merge_packed(parts), whole, rtol=0, atol=1e-13)
    assert (merge_packed([parts[2], parts[2]]) == 0).all(), "a query without keys gets zeros"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_flash_kernel_agrees_with_plain_operations() -> None:
    q, k, v = (rows(n, 2, n, torch.float32).bfloat16().cuda() for n in (10, 12, 12))
    on_cuda = {
        name: value.cuda() if isinstance(value, Tensor) else value
        for name, value in vars(problems_of(RUNS)).items()
    }
    problems = Problems(**on_cuda)
    fast, plain = attend_ragged(q, k, v, problems), attend_ragged_reference(q, k, v, problems)
    for one, other in zip(fast, plain, strict=True):
        torch.testing.assert_close(one.float(), other.float(), rtol=0, atol=2e-2)
