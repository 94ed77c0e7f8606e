"""An order model asked in padded shapes says what the bare model says."""

import pytest
import torch

from decoders.proposers.order import OrderProposer
from drafters.placed import PlacedModel
from models.target import Target
from tests.conftest import tiny_model
from tests.decoders.test_bucketed_exactness import some_requests
from tests.reference.running import run, tiny_order_model, tiny_proposers

CPU = torch.device("cpu")


@pytest.mark.parametrize("form", ["root", "states"])
def test_drafts_of_a_placed_model_are_those_of_the_bare_one(form: str) -> None:
    """In batches of three, so that stale states and drafted states are padded."""
    encodes = "root" if form == "root" else "states"
    requests = [r for r in some_requests(60) if r.options.method == "order"]
    assert requests
    found = []
    for model in (
        tiny_order_model(3, encodes),
        PlacedModel(tiny_order_model(3, encodes), CPU, captures=False),
    ):
        proposers = tiny_proposers() | {"order": OrderProposer(model)}
        results = run(Target(tiny_model()), requests, proposers, batch_size=3)
        found.append({id: result.rounds for id, result in results.items()})
    assert found[0] == found[1]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_model_on_a_gpu_drafts_the_same_text() -> None:
    requests = [r for r in some_requests(60) if r.options.method == "order"]
    placed = PlacedModel(tiny_order_model(3), torch.device("cuda"), captures=True)
    target = Target(tiny_model())
    one, other = (
        run(target, requests, tiny_proposers() | {"order": OrderProposer(model)}, batch_size=3)
        for model in (tiny_order_model(3), placed)
    )
    assert {id: r.token_ids for id, r in one.items()} == {
        id: r.token_ids for id, r in other.items()
    }
