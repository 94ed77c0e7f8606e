"""A drafter in an actor of its own drafts what it drafts beside the target."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from actors.drafter_actor import open_remote_drafters
from cluster.session import Resources
from decoders.loop import Decoder, decode
from decoders.options import DecodeOptions
from decoders.proposers.base import Draft, Proposer, View
from decoders.proposers.registry import open_proposers
from decoders.request import Request
from drafters.bundle import save_order_model
from drafters.config import DrafterConfig
from drafters.order_model import OrderModelConfig, build_order_model
from models.target import Target

pytestmark = pytest.mark.ray
METHODS = {"chain", "order"}


class Both:
    """Asks two proposers and holds them to the same answer."""

    def __init__(self, here: Proposer, there: Proposer) -> None:
        self.here, self.there = here, there
        self.num_drafts = 0

    def propose(self, views: Sequence[View]) -> list[list[Draft]]:
        drafts = self.here.propose(views)
        assert self.there.propose(views) == drafts
        self.num_drafts += sum(map(len, drafts))
        return drafts


def test_remote_drafts_equal_local_ones(
    ray_cluster: Resources, tiny_target: Target, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    save_order_model(build_order_model(OrderModelConfig()), tmp_path)
    arguments = (tmp_path, tiny_target.spec, DrafterConfig(path=str(tmp_path)), METHODS)
    here, there = open_proposers(*arguments), open_remote_drafters(*arguments)
    assert there.keys() == here.keys() == METHODS | {"wtree"}, "training-free ones are always there"
    both = {method: Both(here[method], there[method]) for method in METHODS}
    requests = [
        Request(f"{method}-{temperature}", (5, 6), options, noise_seed=7)
        for method in sorted(METHODS)
        for temperature in (0.0, 1.0)
        for options in [
            DecodeOptions.lenient(method=method, temperature=temperature, max_new_tokens=10)
        ]
    ]
    assert len(list(decode(Decoder(tiny_target, both), requests, batch_size=4))) == 4
    assert all(proposer.num_drafts for proposer in both.values())
