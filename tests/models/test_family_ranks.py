"""Two ranks in two processes decode every family as one rank does."""

import multiprocessing

import torch

from decoders.loop import Decoder, Forwarder, decode
from decoders.request import Request, Result
from models.ranks import join_ranks, leave_ranks, open_store, reach_store
from models.tensor_parallel import LeadingTarget, follow, open_target, sharded_target
from tests.conftest import tiny_model
from tests.reference.families import FAMILIES, family_spec
from tests.reference.grid import draft
from tests.reference.running import prompt_of, tiny_proposers

DTYPE = torch.float32


def follower(port: int) -> None:
    torch.set_num_threads(1)
    ranks = join_ranks(reach_store(port), rank=1, size=2, device="cpu")
    for family in FAMILIES:
        follow(sharded_target(tiny_model(family_spec(family), DTYPE), ranks), ranks)
    leave_ranks()


def outputs(target: Forwarder) -> list[Result]:
    """Standard, threshold and drafted texts side by side, some behind a stored block."""
    requests = [
        Request(str(length), prompt_of(length), draft(method, 4, temperature, 1.0, "top1"), length)
        for length, method, temperature in (
            (0, "standard", 0.0),
            (3, "order", 1.0),
            (5, "threshold", 0.0),
            (9, "chain", 0.0),
        )
    ]
    results = decode(Decoder(target, tiny_proposers()), requests, batch_size=2)
    return sorted(results, key=lambda result: result.request.id)


def test_two_ranks_equal_one_on_every_family() -> None:
    store = open_store()
    context = multiprocessing.get_context("spawn")
    child = context.Process(target=follower, args=(store.port,), daemon=True)
    child.start()
    ranks = join_ranks(store, rank=0, size=2, device="cpu")
    for family in FAMILIES:
        spec = family_spec(family)
        leading = LeadingTarget(sharded_target(tiny_model(spec, DTYPE), ranks), ranks)
        two, one = outputs(leading), outputs(open_target(tiny_model(spec, DTYPE)))
        leading.stop()
        assert [r.token_ids for r in two] == [r.token_ids for r in one], family
        assert [r.rounds for r in two] == [r.rounds for r in one], family
    child.join(20)
    assert child.exitcode == 0
    leave_ranks()
