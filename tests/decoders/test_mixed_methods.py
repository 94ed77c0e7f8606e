"""Requests of every method share a batch, and none of them can tell."""

from functools import cache

import pytest
import torch

from decoders import prefilling
from decoders.auto_budget import AutoBudget
from decoders.cost_curve import CostCurve
from decoders.loop import Decoder
from decoders.options import DecodeOptions
from decoders.request import Request, Result
from models.queries import Query
from models.target import CopyBatch, Target
from tests.conftest import tiny_model
from tests.reference.company import every_drafter, every_method, staggered, texts
from tests.reference.running import prompt_of

FREE = CostCurve(knots=(1, 65), prefixes=(0,), seconds=((1.0, 1.0),))
DTYPES = [torch.float64, torch.float32]


def decoder_of(target: Target, dtype: torch.dtype) -> Decoder:
    return Decoder(target, every_drafter(dtype), auto=AutoBudget(lambda anew: FREE))


@cache
def alone(dtype: torch.dtype) -> dict[str, Result]:
    """Each request decoded by itself."""
    model, results = tiny_model(dtype=dtype), dict[str, Result]()
    for request in every_method():
        results |= staggered(decoder_of(Target(model), dtype), [request])
    return results


def fixed(requests: list[Request]) -> set[str]:
    """Those whose rounds do not depend on what ``auto`` has learnt."""
    return {r.id for r in requests if r.options.budget != "auto"}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_requests_of_every_method_that_join_one_by_one_equal_each_alone(dtype: torch.dtype) -> None:
    target = Target(tiny_model(dtype=dtype))
    together = staggered(decoder_of(target, dtype), every_method())
    assert texts(together) == texts(alone(dtype))
    for id in fixed(every_method()):
        assert together[id].rounds == alone(dtype)[id].rounds
    assert not target.open_slots


def test_a_long_prompt_does_not_hold_up_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes in piece by piece, one a round, while they are decoded; its text is the same."""
    monkeypatch.setattr(prefilling, "PIECE_TOKENS", 10)
    monkeypatch.setattr(prefilling, "ROUND_TOKENS", 1)
    options = DecodeOptions(max_new_tokens=9, ignore_stop=True)
    short, long = Request("short", (5,), options), Request("long", prompt_of(43), options)
    decoder = Decoder(Target(tiny_model()), {})
    sequences = [decoder.add(request) for request in (short, long)]
    for rounds in range(1, 5):
        decoder.step()
        assert len(sequences[0].rounds) == rounds
        assert not sequences[1].prefilled
    results = {result.request.id: result for result in decoder.step()}
    while decoder.active:
        results |= {result.request.id: result for result in decoder.step()}
    assert [round.kind for round in results["long"].rounds[:2]] == ["prefill", "open"]
    monkeypatch.undo()
    expected = staggered(Decoder(Target(tiny_model()), {}), [long])
    assert results["long"].token_ids == expected["long"].token_ids


class Counted(Target):
    """Writes down which slots share each forward."""

    def __init__(self) -> None:
        super().__init__(tiny_model())
        self.copied: list[set[int]] = []
        self.masked: list[set[int]] = []

    def forward_with_hidden(self, batch: CopyBatch) -> tuple[torch.Tensor, torch.Tensor]:
        self.copied.append(set(batch.slots))
        return super().forward_with_hidden(batch)

    def forward_queries(self, queries: list[Query]) -> torch.Tensor:
        self.masked.append({query.slot for query in queries})
        return super().forward_queries(queries)


def test_a_round_is_one_forward_and_one_more_for_drafts_under_a_mask() -> None:
    target = Counted()
    decoder = decoder_of(target, torch.float64)
    for request in every_method():
        decoder.add(request)
    for _ in range(3):
        running = decoder.active.values()
        masked = {s.slot for s in running if s.request.options.masked}
        others = {s.slot for s in running if not s.request.options.masked}
        decoder.step()
        assert target.copied.pop() == others
        assert target.masked.pop() == masked
        assert len(masked) == 1
        assert not target.copied
        assert not target.masked
