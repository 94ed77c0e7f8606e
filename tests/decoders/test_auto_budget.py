"""``budget: auto`` follows what it measured, and never changes an output."""

from collections.abc import Sequence

import pytest
import torch

from decoders.auto_budget import MOST_KINDS, AutoBudget, kind_of
from decoders.balance import (
    LASTING,
    LONGEST_WAIT,
    MOST,
    SHORTEST_WAIT,
    STAKE,
    TRIAL,
    Balance,
)
from decoders.cost_curve import CostCurve
from decoders.loop import Decoder, decode
from decoders.options import PROPOSERS, DecodeOptions
from decoders.proposers.base import View
from decoders.reliability import Reliability
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
    """Forwards take what the curve says and a proposal ``drafter`` seconds a request, whatever this
    machine does."""

    def __init__(self, curve: CostCurve, drafter: float = 0.0) -> None:
        super().__init__(lambda anew: curve)
        self.drafter = drafter

    def proposed(self, options: DecodeOptions, seconds: float) -> None:
        super().proposed(options, self.drafter)

    def forwarded(
        self, seconds: float, requests: int, plain_copies: int, copies: int, prefix: float
    ) -> None:
        seconds = self.curve.at(copies, prefix)
        super().forwarded(seconds, requests, plain_copies, copies, prefix)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("curve", [FREE, STEEP], ids=["free", "steep"])
def test_every_method_stays_exact(curve: CostCurve, temperature: float) -> None:
    asked = [options(method, temperature=temperature) for method in PROPOSERS]
    free = [options("standard", temperature=temperature) for _ in PROPOSERS]
    requests = [Request(str(n), prompt_of(3 * n), o, n) for n, o in enumerate(free)]
    expected = run(Target(tiny_model(tiny_spec(8))), requests)
    for result in decoded(curve, asked)[0]:
        assert outcome(result) == outcome(expected[result.request.id])


@pytest.mark.parametrize("curve", [FREE, STEEP], ids=["free", "steep"])
def test_crossing_blocks_stays_exact_and_pays_where_copies_are_free(curve: CostCurve) -> None:
    asked = [options(method, max_new_tokens=60) for method in ("chain", "order")]
    on = {"cross_block": True, "draft_refresh": 6}
    crossing = [each.model_copy(update=on) for each in asked]
    (plain, _), (found, auto) = decoded(curve, asked), decoded(curve, crossing)
    assert [r.token_ids for r in found] == [r.token_ids for r in plain]
    for each in crossing:
        balance = auto.balance(each)
        assert balance.accepted <= sum(r.accepted for x in found for r in x.rounds)
    if curve is FREE:
        assert sum(r.nfe for r in found) < sum(r.nfe for r in plain)


def test_free_copies_are_used_and_steep_ones_are_not() -> None:
    asked = [options("order") for _ in range(6)]
    (free, _), (steep, _) = decoded(FREE, asked), decoded(STEEP, asked)
    assert sum(r.drafts for x in free for r in x.rounds) > 100
    assert sum(r.drafts for x in steep for r in x.rounds) == 0
    assert sum(x.nfe for x in free) < sum(x.nfe for x in steep)


@pytest.mark.parametrize("batch_size", [1, 4, 16])
@pytest.mark.parametrize(
    ("curve", "drafter"), [(STEEP, 0.0), (FREE, 1000.0)], ids=["dear copies", "dear drafter"]
)
def test_where_drafting_does_not_pay_the_drafter_is_asked_rarely(
    curve: CostCurve, drafter: float, batch_size: int
) -> None:
    """In rounds, however many requests share them."""
    asked_in: set[int] = set()

    class Counting(Timeless):
        num_rounds = 0

        def forwarded(
            self, seconds: float, requests: int, plain_copies: int, copies: int, prefix: float
        ) -> None:
            self.num_rounds += 1
            super().forwarded(seconds, requests, plain_copies, copies, prefix)

        def proposed(self, options: DecodeOptions, seconds: float) -> None:
            asked_in.add(self.num_rounds)
            super().proposed(options, seconds)

    target = Target(tiny_model(tiny_spec(8)))
    auto = Counting(curve, drafter)
    decoder = Decoder(target, tiny_proposers(), auto=auto)
    requests = [
        Request(str(n), (), options("order", max_new_tokens=160), n) for n in range(batch_size)
    ]
    list(decode(decoder, requests, batch_size))
    assert auto.num_rounds > 100
    assert len(asked_in) < TRIAL + 10


def test_a_slow_first_proposal_does_not_count() -> None:
    balance = Balance()
    balance.proposed(100.0)
    assert balance.drafter_seconds == 0.0
    for seconds in (0.1, 0.2, 50.0, 0.1, 0.3):
        balance.proposed(seconds)
    assert balance.drafter_seconds == 0.2, "the median: a pause is no price"


def test_kinds_differ_in_whatever_decides_drafts_or_their_acceptance() -> None:
    base = options("order")
    for values in ({"cap": 0.9}, {"gamma": 0.1}, {"hedge": 0.2}, {"temperature": 1.0}):
        assert kind_of(options("order", **values)) != kind_of(base), values
    assert kind_of(options("chain")) != kind_of(base)
    for values in ({"seed": 3}, {"max_new_tokens": 7}, {"budget": 4}):
        assert kind_of(options("order", **values)) == kind_of(base), values


def test_kinds_that_were_not_asked_for_lately_are_forgotten() -> None:
    auto = AutoBudget(lambda anew: FREE)
    kept, gone = (auto.balance(options("order", temperature=t)) for t in (0.5, 0.6))
    for number in range(MOST_KINDS):
        assert auto.balance(options("order", temperature=0.5)) is kept
        auto.balance(options("order", temperature=1 + number / MOST_KINDS))
    assert len(auto._balances) == MOST_KINDS
    assert auto.balance(options("order", temperature=0.6)) is not gone


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
    beside_four_roots = [drafts for copies, drafts in found if copies == 4]
    assert max(beside_four_roots) == 1
    assert beside_four_roots.count(1) > 5


def test_the_heaviest_drafts_ride_whichever_method_proposed_them() -> None:
    """Three methods in one forward that has room for six drafts: none that stays behind is worth
    more than one that rides."""
    curve = CostCurve(knots=(1, 12, 13, 65), prefixes=(0,), seconds=((1.0, 1.0, 50.0, 90.0),))
    shared: list[set[int]] = []

    class Watched(Timeless):
        def choose(self, views, drafts, requests, copies, prefix):
            worth = [self._masses(view, found) for view, found in zip(views, drafts, strict=True)]
            chosen = super().choose(views, drafts, requests, copies, prefix)
            riding, behind = [], [0.0]
            for found, masses, taken in zip(drafts, worth, chosen, strict=True):
                for draft, mass in zip(found, masses, strict=True):
                    (riding if draft in taken else behind).append(mass)
            assert min(riding, default=1.0) >= max(behind)
            assert copies + len(riding) <= 12 or not riding
            shared.append({index for index, taken in enumerate(chosen) if taken})
            return chosen

    target = Target(tiny_model(tiny_spec(8)))
    decoder = Decoder(target, tiny_proposers(), auto=Watched(curve))
    methods = ("order", "chain", "wtree") * 2
    requests = [Request(str(n), prompt_of(3 * n), options(m), n) for n, m in enumerate(methods)]
    list(decode(decoder, requests, len(methods)))
    assert max(map(len, shared)) > 1, "several requests had drafts in one forward"


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


def waits_of(balance: Balance, trials: int, gains: Sequence[float]) -> list[int]:
    """Plain rounds before each of some trials whose rounds gain ``gains`` (the last goes on)."""
    found = []
    for _ in range(trials):
        waited = 0
        while not balance.admits():
            waited += 1
        found.append(waited + 1)
        for index in range(TRIAL):
            balance.settle(gains[min(index, len(gains) - 1)], 1)
            if not balance.trying:
                break
    return found


def test_trials_grow_rare_and_a_success_brings_drafting_back() -> None:
    balance = Balance()
    waits = waits_of(balance, 8, [-STAKE])
    assert waits == [SHORTEST_WAIT, 8, 16, 32, 64, 128, LONGEST_WAIT, LONGEST_WAIT]
    for _ in range(LONGEST_WAIT + 2 * TRIAL):
        if balance.admits():
            balance.settle(5.0, 3)
    admitted = [balance.admits() for _ in range(2 * LASTING)]
    assert admitted.count(False) == 2, "rare plain rounds keep their price in memory"
    for _ in range(LASTING):
        balance.settle(5.0, 3)
    while balance.admits():
        balance.settle(-5.0, 3)
    assert balance.wait == SHORTEST_WAIT


def test_one_lucky_round_is_no_success() -> None:
    balance = Balance()
    assert waits_of(balance, 3, [3.0, -2.0]) == [SHORTEST_WAIT, 8, 16]
    assert not balance.admits()


def test_a_trial_loses_no_more_than_its_stake() -> None:
    balance = Balance()
    rounds = []
    for _ in range(2):
        while not balance.admits():
            pass
        drafted = 0
        while balance.trying:
            balance.settle(-0.75 * STAKE, 1)
            drafted += 1
        rounds.append(drafted)
    assert rounds == [2, 1]


def test_drafts_that_take_longer_than_the_curve_says_are_given_up() -> None:
    class Deceived(Timeless):
        """The curve promises free copies; a round with drafts takes four times as long."""

        def forwarded(
            self, seconds: float, requests: int, plain_copies: int, copies: int, prefix: float
        ) -> None:
            seconds = 4.0 if copies > plain_copies else 1.0
            AutoBudget.forwarded(self, seconds, requests, plain_copies, copies, prefix)

    target = Target(tiny_model(tiny_spec(8)))
    auto = Deceived(FREE)
    decoder = Decoder(target, tiny_proposers(), auto=auto)
    asked = options("chain", max_new_tokens=160)
    (result,) = decode(decoder, [Request("0", (), asked, 0)], 1)
    drafted = sum(r.drafts > 0 for r in result.rounds)
    assert 0 < drafted < 2 * TRIAL < len(result.rounds) / 5


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

    def measure(anew: bool) -> CostCurve:
        measured.append(anew)
        return FREE

    target = Target(tiny_model(tiny_spec(8), dtype=torch.float32))
    decoder = Decoder(target, tiny_proposers(), auto=AutoBudget(measure))
    fixed = Request("fixed", (5,), options("chain", budget=2, max_new_tokens=8), 0)
    list(decode(decoder, [fixed], 1))
    assert not measured
    asked = [Request(str(n), (5,), options("chain", max_new_tokens=8), n) for n in range(3)]
    list(decode(decoder, asked, 2))
    assert measured.count(False) == 1


@pytest.mark.parametrize(("off", "measured_anew"), [(100.0, True), (0.01, True), (1.2, False)])
def test_a_curve_from_a_bad_moment_is_measured_again_once(off: float, measured_anew: bool) -> None:
    asked = []

    def measure(anew: bool) -> CostCurve:
        asked.append(anew)
        return STEEP

    auto = AutoBudget(measure)
    for _ in range(200):
        auto.forwarded(off * STEEP.at(1), requests=1, plain_copies=1, copies=1, prefix=0.0)
    assert asked == [False], "no round of a running batch waits for it"
    for _ in range(2):
        auto.check_curve()
    assert asked == [False, True] if measured_anew else [False]


@pytest.mark.parametrize(("curve", "floor"), [(FREE, 0.0), (STEEP, 0.25)], ids=["free", "steep"])
def test_drafts_that_no_forward_is_worth_are_not_grown(curve: CostCurve, floor: float) -> None:
    seen: list[View] = []

    class Seen(Timeless):
        def limited(self, view: View, requests: int, prefix: float) -> View:
            seen.append(super().limited(view, requests, prefix))
            return seen[-1]

    target = Target(tiny_model(tiny_spec(8)))
    decoder = Decoder(target, tiny_proposers(), auto=Seen(curve))
    list(decode(decoder, [Request("0", (), options("order", gamma=0.1), 0)], 1))
    assert {view.floor for view in seen} == {floor}
    assert {view.gamma for view in seen} == {max(floor, 0.1)}, "the user's floor stays"
