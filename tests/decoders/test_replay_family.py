"""A family's settings, replayed for one's price, have the rounds of replaying each by itself."""

from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoders.options import ORACLES, DecodeOptions
from decoders.proposers.base import Draft, Proposer
from decoders.proposers.order import OrderProposer
from decoders.replay import replay
from decoders.replay_family import Reach, ask, reach_of, replay_settings, widest
from decoders.request import Request
from decoders.trace import Trace, TraceRecorder
from models.target import Target
from tests.conftest import tiny_model, tiny_spec
from tests.reference.running import ORDER_FORMS, prompt_of, run, tiny_order_model, tiny_proposers

PROPOSERS: dict[str, Proposer] = tiny_proposers(3) | {
    f"order {form}": OrderProposer(tiny_order_model(3, form)) for form in ORDER_FORMS
}
EXACT = settings(derandomize=True, deadline=None, max_examples=4)
BUDGETS = st.integers(0, 33)
OWN: dict[str, dict[str, list[Any]]] = {
    "chain": {},
    "wtree": {"width": [1, 2, 5]},
    "graph": {"prune": [0.0, 0.05, 0.3]},
    "order": {"gamma": [0.0, 0.001, 0.02, 0.3], "hedge": [0.0, 0.3, 0.6, 1.0]},
    **{oracle: {} for oracle in ORACLES},
}
CROSSING = {"cross_block": [False, True]}
RULES = [
    {"temperature": temperature, "cap": cap} for temperature in (0.0, 1.0) for cap in (1.0, 0.9)
]


@cache
def traces_of(temperature: float, cap: float, block: int) -> tuple[Trace, ...]:
    """Prompts that end in every place of a block, limits that end in and between blocks."""
    rule = DecodeOptions(temperature=temperature, cap=cap)
    requests = [
        Request(str(n), prompt_of(n), rule.model_copy(update={"max_new_tokens": (7 * n) % 17}), n)
        for n in range(1, 6)
    ]
    recorder = TraceRecorder()
    target = Target(tiny_model(tiny_spec(block)))
    results = run(target, requests, batch_size=4, observer=recorder)
    return tuple(recorder.finish(results[request.id]) for request in requests)


def drawn(method: str, rule: dict[str, float]) -> st.SearchStrategy[list[DecodeOptions]]:
    """Some settings of a method, of several families."""
    own = {name: st.sampled_from(values) for name, values in (OWN[method] | CROSSING).items()}
    fields = st.fixed_dictionaries({"budget": BUDGETS, **own})
    made = fields.map(
        lambda values: DecodeOptions.model_validate({"method": method} | rule | values)
    )
    return st.lists(made, min_size=1, max_size=4)


@pytest.mark.parametrize("block", [4, 8])
@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("name", [n for n in PROPOSERS if n != "order"])
def test_every_setting_has_the_results_of_its_own_replay(
    name: str, rule: dict[str, float], block: int
) -> None:
    method, proposer = name.split()[0], PROPOSERS[name]
    traces = traces_of(**rule, block=block)

    @EXACT
    @given(drawn(method, rule))
    def check(asked: list[DecodeOptions]) -> None:
        slow = [replay(traces, options, proposer) for options in asked]
        assert list(replay_settings(traces, asked, proposer)) == slow

    check()


def test_every_smaller_budget_is_a_cut_of_the_largest() -> None:
    traces, proposer = traces_of(0.0, 1.0, 8), PROPOSERS["order root"]
    asked = [
        DecodeOptions(method="order", budget=budget, hedge=1.0) for budget in (*range(10), 20, 33)
    ]
    slow = [replay(traces, options, proposer) for options in asked]
    assert list(replay_settings(traces, asked, proposer)) == slow
    assert len({sum(result.nfe for result in results) for results in slow}) > 3


@pytest.mark.parametrize("method", ["standard", "threshold"])
def test_a_method_without_drafts_replays_as_recorded(method: str) -> None:
    options = DecodeOptions.lenient(method=method, tau=0.1, max_new_tokens=9)
    request = Request("a", prompt_of(5), options, 1)
    recorder = TraceRecorder()
    live = run(Target(tiny_model(tiny_spec(4))), [request], observer=recorder)["a"]
    [[replayed]] = replay_settings([recorder.finish(live)], [options], None)
    assert replayed.rounds == live.rounds


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (DecodeOptions(method="chain", cap=0.9), "decode.cap 0.9: .*record them again"),
        (DecodeOptions(method="chain", budget="auto"), "decode.budget auto: .*takes a number"),
    ],
)
def test_what_replay_refuses_is_refused(options: DecodeOptions, said: str) -> None:
    asked = [DecodeOptions(method="chain"), options]
    with pytest.raises(ValueError, match=said):
        next(replay_settings(traces_of(0.0, 1.0, 4), asked, PROPOSERS["chain"]))


def test_a_family_is_asked_once_about_every_root() -> None:
    class Counting:
        views = 0

        def propose(self, views: Any) -> list[list[Draft]]:
            self.views += len(views)
            return PROPOSERS["order"].propose(views)

    traces, counting = traces_of(0.0, 1.0, 4), Counting()
    asked = [
        DecodeOptions(method="order", budget=budget, gamma=gamma, hedge=hedge)
        for budget in (1, 5)
        for gamma in (0.0, 0.1)
        for hedge in (0.3, 0.6)
    ]
    assert len(list(replay_settings(traces, asked, counting))) == 8
    roots = sum(len(block.states) - 1 for trace in traces for block in trace.blocks)
    assert counting.views == 2 * roots


def test_the_widest_setting_of_a_family_has_its_largest_budget_and_no_floor() -> None:
    asked = [
        DecodeOptions(method="order", budget=3, gamma=0.1),
        DecodeOptions(method="order", budget=2, gamma=0.3),
        DecodeOptions(method="order", budget=9, hedge=0.5),
    ]
    assert list(widest(asked).values()) == [
        DecodeOptions(method="order", budget=3, gamma=0.0),
        DecodeOptions(method="order", budget=9, gamma=0.0, hedge=0.5),
    ]


def test_a_reach_says_how_many_drafts_it_takes_to_follow_the_trajectory() -> None:
    first, second, third, beside = (1, 0, 0), (1, 2, 0), (1, 2, 3), (0, 2, 0)
    drafts = [Draft(first, 0.9, 0.9), Draft(beside, 0.8, 0.5), Draft(second, 0.7, 0.2)]
    reach = reach_of(drafts, [(None, first), (None, second), (None, third)], 0)
    assert reach == Reach((-0.9, -0.5, -0.2), (1, 3))
    assert [reach.accepted(n) for n in range(4)] == [0, 1, 1, 2]
    assert [reach.drafts(9, floor) for floor in (0.0, 0.2, 0.3, 0.5, 0.95)] == [3, 3, 2, 2, 0]
    assert reach.drafts(1, 0.2) == 1
    assert reach_of(drafts, [(None, third), (None, first)], 0).needed == ()


def test_a_later_parent_is_needed_as_well() -> None:
    """A state whose listed parent is another one is reached only once its own is listed."""
    first, second, other = (1, 0), (1, 2), (0, 2)
    drafts = [Draft(other, 1.0), Draft(second, 1.0), Draft(first, 1.0)]
    assert reach_of(drafts, [(None, first), (None, second)], 0).needed == (3, 3)


def test_a_full_draft_is_verified_only_with_the_copy_behind_it() -> None:
    first, full, blank = (1, 0), (1, 2), (0, 0)
    drafts = [Draft(first, 0.9), Draft(full, 0.5), Draft(blank, 0.5, behind=full)]
    reach = reach_of(drafts, [(None, first), (full, blank)], 0)
    assert [reach.drafts(budget, 0.0) for budget in range(5)] == [0, 1, 1, 3, 3]
    assert [reach.accepted(drafts) for drafts in (0, 1, 3)] == [0, 1, 2]


def test_without_a_proposer_nothing_is_reached() -> None:
    traces = traces_of(0.0, 1.0, 4)
    [reaches] = ask(traces, [DecodeOptions(method="chain", budget=4)], None)
    assert {reach.accepted(reach.drafts(4, 0.0)) for reach in reaches} == {0}
