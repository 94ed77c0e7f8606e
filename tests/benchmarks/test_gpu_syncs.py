"""Hidden waits for a GPU are found by their warnings, with the line that made them."""

import warnings

import pytest
import torch

from benchmarks.gpu.plan import GpuPlan
from benchmarks.gpu.syncs import counted_waits, is_wait, measure_syncs, place_of


def test_only_warnings_of_hidden_waits_count() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.warn("called a synchronizing CUDA operation", stacklevel=1)
        warnings.warn("something else", stacklevel=1)
    assert [is_wait(warning) for warning in caught] == [True, False]
    assert place_of(caught[0]).startswith("test_gpu_syncs.py:")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_wait_is_counted_on_a_gpu() -> None:
    tensor = torch.ones(3, device="cuda")
    with counted_waits() as waits:
        tensor.sum().item()
    assert waits.count == 1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_decode_with_graphs_has_no_hidden_waits() -> None:
    plan = GpuPlan(problems=1, max_new_tokens=16)
    assert all(row["met"] for row in measure_syncs(plan, lambda done, total: None))
