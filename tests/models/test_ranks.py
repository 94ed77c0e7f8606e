"""What a rank sees when another one is not there."""

import multiprocessing
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
import torch

from models.ranks import RankError, Ranks, join_ranks, leave_ranks, open_store, reach_store


def dying_rank(port: int) -> None:
    join_ranks(reach_store(port), rank=1, size=2, device="cpu")


@pytest.fixture
def widowed() -> Iterator[Ranks]:
    """Rank 0 of a group whose rank 1 has died."""
    store = open_store()
    context = multiprocessing.get_context("spawn")
    child = context.Process(target=dying_rank, args=(store.port,), daemon=True)
    child.start()
    ranks = join_ranks(store, rank=0, size=2, device="cpu")
    child.join(20)
    yield ranks
    leave_ranks()


def test_a_dead_rank_is_noticed_at_once(widowed: Ranks) -> None:
    started = time.perf_counter()
    with pytest.raises(RankError, match="tensor-parallel group"):
        widowed.sum(torch.ones(3))
    assert time.perf_counter() - started < 5


def lonely_rank() -> None:
    with pytest.raises(RankError):
        join_ranks(open_store(), rank=0, size=2, device="cpu", timeout=timedelta(seconds=1))


def test_a_rank_that_never_comes_ends_the_wait() -> None:
    # In a process of its own: a group that failed to form leaves torch's group counter behind.
    child = multiprocessing.get_context("spawn").Process(target=lonely_rank, daemon=True)
    child.start()
    child.join(30)
    assert child.exitcode == 0
