"""Requests of every method beside each other, and what they come to: for tests of batches."""

from collections.abc import Mapping, Sequence

import torch

from decoders.batch_drafting import Proposers
from decoders.loop import Decoder
from decoders.options import DecodeOptions
from decoders.request import Request, Result
from decoders.simsd.companion import SimSD
from decoders.simsd.small_model import SmallModel
from models.target import Target
from tests.conftest import tiny_model
from tests.reference.running import prompt_of, tiny_proposers, tiny_sets_proposer

WAYS: list[dict[str, object]] = [
    {"method": "standard"},
    {"method": "threshold", "tau": 0.05},
    {"method": "chain", "budget": 4},
    {"method": "order", "budget": 9, "cross_block": True},
    {"method": "simsd", "gamma": 3},
    {"method": "sets", "budget": 6, "tau": 0.05},
    {"method": "wtree", "budget": 5, "draft_refresh": 3},
    {"method": "simsd", "verify": "exact"},
    {"method": "graph", "budget": 6},
    {"method": "order", "budget": "auto"},
    {"method": "threshold", "tau": 0.05, "edit_tau": 0.1},
    {"method": "chain", "budget": "auto", "cross_block": True},
]


def every_method(limit: int = 13, prompt: Sequence[int] = ()) -> list[Request]:
    """Twelve requests: every method, temperatures, caps, lengths; each its own seed. All begin with
    ``prompt``."""
    return [
        Request(
            f"r{index}",
            (*prompt, *prompt_of(index % 10, index)),
            DecodeOptions.lenient(
                temperature=(0.0, 0.7, 1.0)[index % 3],
                cap=(1.0, 0.9)[index % 2],
                max_new_tokens=limit - index % 3,
                ignore_stop=index % 2 == 0,
                **way,
            ),
            index,
        )
        for index, way in enumerate(WAYS)
    ]


def every_drafter(dtype: torch.dtype) -> Proposers:
    """What the methods of :func:`every_method` draft with."""
    small = SmallModel(Target(tiny_model(dtype=dtype, seed=1)))
    return {**tiny_proposers(), "sets": tiny_sets_proposer(), "simsd": SimSD(small)}


def texts(results: Mapping[str, Result]) -> dict[str, tuple[object, ...]]:
    """What a client sees of every result."""
    return {id: (result.token_ids, result.stop_reason) for id, result in results.items()}


def staggered(decoder: Decoder, requests: Sequence[Request]) -> dict[str, Result]:
    """Results of requests of which one joins every other round."""
    waiting, results, rounds = [*requests], dict[str, Result](), 0
    while waiting or decoder.active:
        if waiting and rounds % 2 == 0:
            decoder.add(waiting.pop(0))
        results |= {result.request.id: result for result in decoder.step()}
        rounds += 1
    return results
