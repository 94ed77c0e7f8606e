"""``budget: auto`` follows what it measured, and never changes an output."""

from collections.abc import Sequence

import pytest
import torch

from decoders.auto_budget import FIRST_PROBE, LAST_PROBE, MOST, AutoBudget, Balance, Reliability
from decoders.cost_curve import CostCurve
from decoders.loop import Decoder, decode
from decoders.options import PROPOSERS, DecodeOptions
from decoders.request import Request, Result
from models.target import Target
from tests.conftest import tiny_model, tiny_spec
from tests.reference.running import outcome, prompt_of, run, tiny_proposers

FREE = CostCurve(knots=(1, 65), prefixes=(0,), seconds=((1.0, 1.0),))
STEEP = CostCurve(knots=(1, 65), prefixes=(0,), seconds=((1.0, 65.0),))


def options(method: str, **values: object) -> DecodeOptions:
    return DecodeOptions.lenient(
        **({"method": method, "budget": "auto", "max_new_tokens": 40, "ignore_stop": True} | values)
    )


def decoded(
    curve: CostCurve, asked: Sequence[DecodeOptions], batch_size: int = 4
) -> tuple[list[Result], AutoBudget]:
    """Results of one request an entry of ``asked``, with clocks that only the curve moves."""
    target = Target(tiny_model(tiny_spec(8)))
    auto = Timeless(curve)
    decoder = Decoder(target, tiny_proposers(), auto=auto)
    requests = [Request(str(n), prompt_of(3 * n), o, n) for n, o in enumerate(asked)]
    results = {r.request.id: r for r in decode(decoder, requests, batch_size)}
    return [results[request.id] for request in requests], auto


class Timeless(AutoBudget):
    """Drafters cost nothing and forwards what the curve says, whatever this machine does."""

    def __init__(self, curve: CostCurve) -> None:
        super().__init__(lambda: curve)

    def proposed(self, options: DecodeOptions, seconds: float) -> None:
        super().proposed(options, 0.0)

    def passed(
        self, steps: int, seconds: float, forward: float, copies: int, prefix: float
    ) -> None:
        expected = self.curve.at(copies, prefix)
        super().passed(steps, expected, expected, copies, prefix)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("curve", [FREE, STEEP], ids=["free", "steep"])
def test_every_method_stays_exact(curve: CostCurve, temperature: float) -> None:
    asked = [options(method, temperature=temperature) for method in PROPOSERS]
    free = [options("standard", temperature=temperature) for _ in PROPOSERS]
    requests = [Request(str(n), prompt_of(3 * n), o, n) for n, o in enumerate(free)]
    expected = run(Target(tiny_model(tiny_spec(8))), requests)
    for result in decoded(curve, asked)[0]:
        assert outcome(result) == outcome(expected[result.request.id])


def test_free_copies_are_used_and_steep_ones_are_not() -> None:
    asked = [options("order") for _ in range(6)]
    (free, _), (steep, _) = decoded(FREE, asked), decoded(STEEP, asked)
    assert sum(r.drafts for x in free for r in x.rounds) > 100
    assert sum(r.drafts for x in steep for r in x.rounds) == 0
    assert sum(x.nfe for x in free) < sum(x.nfe for x in steep)


def test_where_drafting_does_not_pay_the_drafter_is_asked_rarely() -> None:
    calls = []

    class Counting(Timeless):
        def limited(self, view):
            calls.append(view)
            return super().limited(view)

    target = Target(tiny_model(tiny_spec(8)))
    decoder = Decoder(target, tiny_proposers(), auto=Counting(STEEP))
    request = Request("a", (), options("order", max_new_tokens=240), 1)
    [result] = decode(decoder, [request], 1)
    assert result.nfe == 240
    assert len(calls) < FIRST_PROBE + 12


def test_requests_with_a_fixed_budget_keep_it_beside_auto_ones() -> None:
    asked = [options("chain", budget=2), options("chain"), options("standard")]
    mixed, _ = decoded(FREE, asked)
    alone, _ = decoded(FREE, asked[:1])
    assert mixed[0].rounds == alone[0].rounds


def test_a_running_batch_shares_one_budget() -> None:
    """Room for one draft beside four roots: it goes to one request at a time."""
    curve = CostCurve(knots=(1, 5, 6, 65), prefixes=(0,), seconds=((1.0, 1.0, 50.0, 90.0),))
    found: list[tuple[int, int]] = []

    class Watched(Timeless):
        def choose(self, views, drafts, requests, copies, prefix):
            chosen = super().choose(views, drafts, requests, copies, prefix)
            found.append((copies, sum(map(len, chosen))))
            return chosen

    target = Target(tiny_model(tiny_spec(8)))
    decoder = Decoder(target, tiny_proposers(), auto=Watched(curve))
    requests = [Request(str(n), prompt_of(3 * n), options("order"), n) for n in range(4)]
    list(decode(decoder, requests, 4))
    assert all(copies + drafts <= 5 or drafts == 0 for copies, drafts in found)
    assert sum(drafts == 1 for copies, drafts in found if copies == 4) > 5


def test_reliability_begins_with_the_mass_and_ends_with_the_rate() -> None:
    reliability = Reliability()
    assert reliability.probability(0.8, 1) == pytest.approx(0.8)
    for index in range(400):
        reliability.observe(0.8, 1, index % 4 == 0)
    assert reliability.probability(0.8, 1) == pytest.approx(0.25, abs=0.02)
    assert reliability.probability(0.8, 2) == pytest.approx(0.8), "other depths are other drafts"
    assert reliability.probability(0.05, 1) == pytest.approx(0.05)


@pytest.mark.parametrize("mass", [-1.0, 0.0, 1e-12, 0.5, 1.0, 1.5])
@pytest.mark.parametrize("depth", [1, 16, 99])
def test_any_mass_at_any_depth_is_a_probability(mass: float, depth: int) -> None:
    reliability = Reliability()
    reliability.observe(mass, depth, True)
    assert 0 <= reliability.probability(mass, depth) <= 1


def test_probes_grow_rare_and_a_success_brings_drafting_back() -> None:
    balance = Balance()
    for _ in range(FIRST_PROBE):
        assert balance.admits()
        balance.settle(-1.0, 0)
    waits, since = [], 0
    while len(waits) < 6:
        since += 1
        if balance.admits():
            waits.append(since)
            since = 0
            balance.settle(-1.0, 0)
    assert waits == [FIRST_PROBE, 16, 32, LAST_PROBE, LAST_PROBE, LAST_PROBE]
    for _ in range(200):
        if balance.admits():
            balance.settle(5.0, 3)
    assert all(balance.admits() for _ in range(5))


def test_the_limit_follows_what_is_taken() -> None:
    balance = Balance()
    for _ in range(60):
        balance.settle(1.0, 2)
    assert balance.limit <= 2 * 2 + 2 + 4
    for _ in range(60):
        balance.settle(1.0, balance.limit)
    assert balance.limit == MOST


def test_the_first_auto_request_measures_and_no_other() -> None:
    measured = []

    def measure() -> CostCurve:
        measured.append(1)
        return FREE

    target = Target(tiny_model(tiny_spec(8), dtype=torch.float32))
    decoder = Decoder(target, tiny_proposers(), auto=AutoBudget(measure))
    fixed = Request("fixed", (5,), options("chain", budget=2, max_new_tokens=8), 0)
    list(decode(decoder, [fixed], 1))
    assert not measured
    asked = [Request(str(n), (5,), options("chain", max_new_tokens=8), n) for n in range(3)]
    list(decode(decoder, asked, 2))
    assert len(measured) == 1
