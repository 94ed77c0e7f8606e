"""Two ranks with padded forwards: each has a pool for its own heads, and the same buckets."""

import multiprocessing
from collections.abc import Iterator
from datetime import timedelta

import pytest
import torch

from decoders.loop import Decoder, decode
from models.leading import LeadingTarget, follow
from models.opening import AnyTarget, open_target
from models.ranks import Ranks, join_ranks, leave_ranks, open_store, reach_store
from models.target import Target
from models.tensor_parallel import shard_model
from tests.conftest import tiny_model
from tests.decoders.test_bucketed_exactness import some_requests
from tests.reference.running import run, tiny_proposers

PATIENCE = timedelta(seconds=60)


def share(ranks: Ranks) -> AnyTarget:
    model = tiny_model()
    shard_model(model, ranks)
    return open_target(model, ranks, "buckets")


def follower(port: int) -> None:
    torch.set_num_threads(1)
    ranks = join_ranks(reach_store(port), rank=1, size=2, device="cpu", timeout=PATIENCE)
    follow(share(ranks), ranks)
    leave_ranks()


@pytest.fixture
def leader() -> Iterator[LeadingTarget]:
    store = open_store()
    child = multiprocessing.get_context("spawn").Process(
        target=follower, args=(store.port,), daemon=True
    )
    child.start()
    ranks = join_ranks(store, rank=0, size=2, device="cpu", timeout=PATIENCE)
    leading = LeadingTarget(share(ranks), ranks)
    yield leading
    leading.stop()
    child.join(20)
    assert child.exitcode == 0
    leave_ranks()


def test_two_ranks_with_padded_forwards_decode_as_one_with_plain_ones(
    leader: LeadingTarget,
) -> None:
    requests, proposers = some_requests(20), tiny_proposers()
    one = run(Target(tiny_model()), requests, proposers, batch_size=4)
    two = {r.request.id: r for r in decode(Decoder(leader, proposers), requests, 4)}
    assert {id: result.rounds for id, result in two.items()} == {
        id: result.rounds for id, result in one.items()
    }
