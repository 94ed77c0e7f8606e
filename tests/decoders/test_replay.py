"""Replay gives the rounds of a live run exactly, for every lossless setting, without the target."""

from functools import cache

import pytest

from decoders.options import DecodeOptions
from decoders.proposers.base import Proposer
from decoders.proposers.remembering import RememberingOrderProposer
from decoders.replay import replay
from decoders.request import Request
from decoders.trace import Trace, TraceRecorder
from models.target import Target
from tests.conftest import tiny_model, tiny_spec
from tests.reference.running import prompt_of, run, tiny_order_model, tiny_proposers

PROPOSERS = tiny_proposers(3)
RULES: dict[str, dict[str, object]] = {
    "greedy": {},
    "capped": {"cap": 0.9},
    "left to right": {"cap": 0.0},
    "warm": {"temperature": 0.7},
    "chosen": {"temperature": 1.0, "confidence": "chosen", "cap": 0.9},
    "drawn anew": {"temperature": 1.0, "coupled": False},
    "filtered": {"temperature": 2.0, "top_k": 7, "top_p": 0.9},
}
DRAFTING: list[dict[str, object]] = [
    {"method": "standard"},
    {"method": "chain", "budget": 0},
    {"method": "chain", "budget": 3},
    {"method": "order", "budget": 1},
    {"method": "order", "budget": 8, "hedge": 1.0},
    {"method": "order", "budget": 20, "gamma": 0.02},
    {"method": "wtree", "budget": 8, "width": 2},
    {"method": "graph", "budget": 12, "prune": 0.1},
    {"method": "oracle-position", "budget": 3},
    {"method": "oracle-token", "budget": 3},
    {"method": "oracle-joint", "budget": 20},
    {"method": "chain", "budget": 4, "cross_block": True},
    {"method": "order", "budget": 5, "hedge": 1.0, "cross_block": True},
    {"method": "oracle-joint", "budget": 8, "cross_block": True},
]


@cache
def target(block: int) -> Target:
    return Target(tiny_model(tiny_spec(block)))


def requests_of(options: DecodeOptions) -> list[Request]:
    """Prompts that end in every place of a block, limits that end in and between blocks."""
    return [
        Request(
            str(n), prompt_of(n), options.model_copy(update={"max_new_tokens": (5 * n) % 14}), n
        )
        for n in range(9)
    ]


@cache
def traces_of(rule: str, block: int = 4) -> tuple[Trace, ...]:
    requests = requests_of(DecodeOptions.model_validate(RULES[rule]))
    recorder = TraceRecorder()
    results = run(target(block), requests, batch_size=4, observer=recorder)
    return tuple(recorder.finish(results[request.id]) for request in requests)


def setting(rule: str, drafting: dict[str, object]) -> DecodeOptions:
    return DecodeOptions.model_validate(RULES[rule] | drafting)


@pytest.mark.parametrize("drafting", DRAFTING, ids=lambda d: "-".join(map(str, d.values())))
@pytest.mark.parametrize("rule", RULES)
def test_replay_equals_live(rule: str, drafting: dict[str, object]) -> None:
    options = setting(rule, drafting)
    replayed = replay(traces_of(rule), options, PROPOSERS.get(options.method))
    live = run(target(4), requests_of(options), PROPOSERS)
    for result in replayed:
        expected = live[result.request.id]
        assert result.rounds == expected.rounds
        assert result.token_ids == expected.token_ids
        assert result.stop_reason == expected.stop_reason
        assert result.nfe == expected.nfe
        assert result.accepted_per_round == expected.accepted_per_round
        assert result.tokens_per_forward == expected.tokens_per_forward


@pytest.mark.parametrize("method", ["chain", "order"])
def test_replay_equals_live_in_wide_blocks(method: str) -> None:
    options = DecodeOptions.lenient(method=method, budget=9, cap=0.9, hedge=0.9)
    replayed = replay(traces_of("capped", block=16), options, PROPOSERS[method])
    live = run(target(16), requests_of(options), PROPOSERS, batch_size=3)
    assert [r.rounds for r in replayed] == [live[r.request.id].rounds for r in replayed]
    assert sum(r.accepted for result in replayed for r in result.rounds) > 0


def test_a_remembering_proposer_replays_every_setting_alike() -> None:
    remembering: Proposer = RememberingOrderProposer(tiny_order_model(3))
    for drafting in [d for d in DRAFTING if d["method"] == "order"]:
        options = setting("warm", drafting)
        traces = traces_of("warm")
        once = replay(traces, options, PROPOSERS["order"])
        assert [r.rounds for r in replay(traces, options, remembering)] == [r.rounds for r in once]


def test_a_threshold_trace_replays_as_itself() -> None:
    options = DecodeOptions(method="threshold", tau=0.1, max_new_tokens=9)
    request = Request("a", prompt_of(5), options, 1)
    recorder = TraceRecorder()
    live = run(target(4), [request], observer=recorder)["a"]
    [replayed] = replay([recorder.finish(live)], options, None)
    assert replayed.rounds == live.rounds
    with pytest.raises(ValueError, match=r"decode.tau 0.2: .*recorded with 0.1"):
        replay([recorder.finish(live)], DecodeOptions(method="threshold", tau=0.2), None)


@pytest.mark.parametrize(
    ("rule", "asked", "field"),
    [
        ("greedy", {"method": "chain", "cap": 0.9}, "cap"),
        ("capped", {"method": "chain"}, "cap"),
        ("greedy", {"method": "threshold"}, "(rule|tau|cap)"),
        ("greedy", {"method": "chain", "confidence": "chosen"}, "confidence"),
        ("greedy", {"method": "chain", "ignore_stop": True}, "ignore_stop"),
        ("filtered", {"method": "chain", "temperature": 2.0, "top_k": 7}, "top_p"),
        ("filtered", {"method": "chain", "temperature": 2.0, "top_p": 0.9}, "top_k"),
    ],
)
def test_a_replay_of_another_rule_is_refused(
    rule: str, asked: dict[str, object], field: str
) -> None:
    with pytest.raises(ValueError, match=rf"decode\.{field} .*record them again"):
        replay(traces_of(rule), DecodeOptions.model_validate(asked), PROPOSERS["chain"])


def test_a_replay_of_what_no_trace_holds_is_refused() -> None:
    options = DecodeOptions(method="chain", draft_refresh=3)
    with pytest.raises(ValueError, match=r"decode\.draft_refresh 3: .*replay takes 0"):
        replay(traces_of("greedy"), options, PROPOSERS["chain"])


def test_limits_and_temperatures_stay_those_of_the_rows() -> None:
    """A recording of rows with their own temperatures, zero among them, replays as it ran."""
    options = DecodeOptions(method="order", budget=6, temperature=0.7, max_new_tokens=9)
    requests = [
        Request(str(i), prompt_of(3), options.model_copy(update={"temperature": t}), i)
        for i, t in enumerate([0.0, 0.7, 2.0])
    ]
    recorder = TraceRecorder()
    bases = [Request(r.id, r.prompt_ids, r.options.draft_free(), r.noise_seed) for r in requests]
    base = run(target(4), bases, observer=recorder)
    traces = [recorder.finish(base[request.id]) for request in requests]
    live = run(target(4), requests, PROPOSERS)
    replayed = replay(traces, options, PROPOSERS["order"])
    assert [r.rounds for r in replayed] == [live[r.request.id].rounds for r in replayed]
