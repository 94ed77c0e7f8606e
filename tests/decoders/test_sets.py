"""``sets``: exact over threshold decoding, every lossy step within its rule, replay as live."""

import math
from collections import Counter
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
import torch

from decoders.loop import Decoder, decode
from decoders.options import Acceptance, DecodeOptions
from decoders.proposers.base import Draft, Proposer, View
from decoders.replay import replay
from decoders.replay_family import replay_settings
from decoders.request import Request, Result
from decoders.state import fill
from decoders.trace import Trace, TraceRecorder
from models.opening import open_target
from models.target import Target
from tests.conftest import tiny_model
from tests.reference.acceptance import is_acceptable
from tests.reference.decoding import drawn_token, log_odds_of
from tests.reference.families import FAMILIES, family_spec
from tests.reference.grid import DTYPES, cut
from tests.reference.network import reference_logits
from tests.reference.running import (
    commits,
    outcome,
    prompt_of,
    run,
    run_one,
    tiny_sets_proposer,
    with_stops,
)
from tests.reference.sharp import SHARPNESS, TAUS, sharp_model, threshold_text

LONGEST = 9
PROPOSERS: dict[str, Proposer] = {"sets": tiny_sets_proposer()}
LOSSY: tuple[Acceptance, ...] = ("cut", "subset", "product")


class Nearby:
    """Drafts every run of the stale order with the stale tokens, long and short: many are what the
    target commits, and many are what only a lossy rule takes."""

    def propose(self, views: Sequence[View]) -> list[list[Draft]]:
        return [self._near(view) for view in views]

    def _near(self, view: View) -> list[Draft]:
        mask, found = view.end.mask_id, set()
        stale = dict(zip(view.stale.positions.tolist(), view.stale.candidates[:, 0], strict=True))
        ranked = [int(view.stale.positions[i]) for i in np.argsort(-view.stale.rank_log_odds)]
        masked = [p for p in ranked if view.root[p] == mask]
        for first in range(len(masked)):
            for last in range(first + 1, len(masked) + 1):
                step = tuple((p, int(stale[p])) for p in masked[first:last])
                found.add(fill(view.root, step))
        lossy = not view.options.lossless
        return [Draft(s, 0.5) for s in sorted(found) if lossy or not view.barren(s)]


def asked(tau: float, temperature: float, **more: object) -> DecodeOptions:
    values = {"method": "sets", "ignore_stop": True, "max_new_tokens": LONGEST} | more
    return DecodeOptions.model_validate({"tau": tau, "temperature": temperature} | values)


def test_the_target_of_these_tests_is_sure_of_some_positions_and_not_of_others() -> None:
    sizes = Counter(
        len(step)
        for tau in TAUS
        for length in range(10)
        for step in threshold_text(torch.float64, tau, 0.0, "top1", length, LONGEST).steps
    )
    assert {1, 2, 3} <= sizes.keys()


@pytest.mark.parametrize("tau", TAUS)
@pytest.mark.parametrize("temperature", [0.0, 0.7, 2.0])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_exact_equals_threshold_decoding_step_by_step(
    dtype: torch.dtype, temperature: float, tau: float
) -> None:
    target, accepted = Target(sharp_model(dtype)), 0
    for length in range(10) if dtype == torch.float64 else (1, 4, 7):
        confidence = ("top1", "chosen")[length % 2]
        expected = threshold_text(dtype, tau, temperature, confidence, length, LONGEST)
        for method, budget in (("threshold", 0), ("sets", 5), ("sets", 30)):
            proposers = {"sets": Nearby()} if budget == 30 else PROPOSERS
            options = DecodeOptions.lenient(
                method=method,
                tau=tau,
                budget=budget,
                temperature=temperature,
                confidence=confidence,
                ignore_stop=True,
                max_new_tokens=LONGEST,
            )
            result = run_one(target, prompt_of(length), options, length, proposers)
            assert outcome(result) == (expected.token_ids, "length")
            assert commits(result) == list(expected.steps)
            accepted += sum(r.accepted for r in result.rounds)
    if tau > 0.5 and not temperature:  # (else most blocks are full after two steps)
        assert accepted > 0, "drafts were gone through"


@pytest.mark.parametrize("tau", TAUS[1:3])
def test_exact_equals_threshold_at_every_stop_and_in_batches(tau: float) -> None:
    requests, expected = [], {}
    stop_ids = (5, 9, 14, 19)
    for length in range(10):
        for limit in (0, 3 + length % 4, LONGEST):
            for temperature in (0.0, 1.0):
                boundary = {"cross_block": length % 2 == 0, "draft_refresh": length % 3}
                options = asked(
                    tau,
                    temperature,
                    budget=6,
                    max_new_tokens=limit,
                    ignore_stop=False,
                    **boundary,
                )
                request = Request(
                    f"{length}-{limit}-{temperature}", prompt_of(length), options, length
                )
                text = threshold_text(torch.float64, tau, temperature, "top1", length, LONGEST)
                requests.append(request)
                expected[request.id] = cut(text.token_ids, limit, stop_ids)
    results = run(with_stops(sharp_model(), stop_ids), requests, PROPOSERS, batch_size=4)
    assert {id: outcome(result) for id, result in results.items()} == expected


def test_where_nothing_passes_one_position_is_still_committed() -> None:
    """Of an unsure target every step is the most confident position alone."""
    options = asked(0.95, 0.0, budget=4)
    result = run_one(Target(tiny_model()), prompt_of(5), options, 0, PROPOSERS)
    assert {len(step) for step in commits(result)} == {1}
    assert len(result.token_ids) == LONGEST


def said_of(tokens: Sequence[int], start: int, options: DecodeOptions, seed: int) -> dict:
    """Every masked position of the active block: its token and the log-odds of its confidence."""
    model = sharp_model()
    mask = model.spec.mask_token_id
    logits = reference_logits(model, list(tokens))
    logits[:, mask] = -math.inf
    if set(tokens) == {mask}:
        logits[1:] = logits[0]  # an empty prompt: rows differ by rounding alone
    found = {}
    for position in range(start, len(tokens)):
        if tokens[position] == mask:
            row = logits[position].tolist()
            token = drawn_token(row, options, seed, position)
            top1 = max(range(len(row)), key=lambda v: (row[v], -v))
            ranked = token if options.confidence == "chosen" else top1
            found[position] = (token, log_odds_of(row, ranked))
    return found


def check_every_step(result: Result, rule: Acceptance) -> Counter:
    """Each committed step against its rule, the naive target asked at every state; counts steps
    that threshold decoding would not have made. A round's last step need not be a draft's."""
    model, request = sharp_model(), result.request
    block, mask = model.spec.block_size, model.spec.mask_token_id
    text, seen = list(request.prompt_ids), Counter()
    for round in result.rounds:
        for step in round.steps:
            while not all(p < len(text) for p, _ in step):
                text += [mask] * (block - len(text) % block)
            start = len(text) - block
            row = said_of(text, start, request.options, request.noise_seed)
            bound = math.log(request.options.tau / (1 - request.options.tau))
            assert is_acceptable(tuple(sorted(step)), row, request.options.tau, rule)
            own = {p for p, (_, lo) in row.items() if lo > bound}
            seen["own" if {p for p, _ in step} == own else "other"] += 1
            for position, token in step:
                assert text[position] == mask
                text[position] = token
    return seen


@pytest.mark.parametrize("rule", LOSSY)
def test_every_committed_step_satisfies_its_own_rule(rule: Acceptance) -> None:
    target, seen, nfe, free = Target(sharp_model()), Counter(), 0, 0
    proposers: dict[str, Proposer] = {"sets": Nearby()}
    for length in range(6):
        for tau, temperature in ((0.5, 0.0), (0.7, 1.0), (0.9, 0.0)):
            crosses = length % 2 == 0
            options = asked(tau, temperature, rule=rule, budget=30, cross_block=crosses)
            result = run_one(target, prompt_of(length), options, length, proposers)
            seen += check_every_step(result, rule)
            nfe += result.nfe
            free += run_one(target, prompt_of(length), options.draft_free(), length).nfe
    assert seen["other"] > 0, "the rule took what threshold decoding would not commit"
    assert nfe < free


def test_exact_with_the_same_drafts_commits_what_threshold_decoding_does() -> None:
    target = Target(sharp_model())
    proposers: dict[str, Proposer] = {"sets": Nearby()}
    for length in range(6):
        options = asked(0.7, 0.0, budget=30)
        result = run_one(target, prompt_of(length), options, length, proposers)
        expected = threshold_text(torch.float64, 0.7, 0.0, "top1", length, LONGEST)
        assert commits(result) == list(expected.steps)


@cache
def traces_of(tau: float, temperature: float, hidden: bool = True) -> tuple[Trace, ...]:
    free = asked(tau, temperature).draft_free()
    requests = [Request(str(n), prompt_of(n), free, n) for n in range(6)]
    recorder = TraceRecorder()
    decoder = Decoder(Target(sharp_model()), {}, recorder, hidden=hidden)
    found = {r.request.id: recorder.finish(r) for r in decode(decoder, requests, 3)}
    return tuple(found[request.id] for request in requests)


@pytest.mark.parametrize(("tau", "temperature"), [(0.95, 0.0), (0.7, 1.0)])
def test_replay_gives_the_rounds_of_a_live_run(tau: float, temperature: float) -> None:
    settings = [
        asked(tau, temperature, budget=budget, gamma=gamma)
        for budget, gamma in ((0, 0.0), (1, 0.0), (9, 0.0), (9, 0.05))
    ]
    settings.append(asked(tau, temperature, budget=9, cross_block=True))
    traces, proposer = traces_of(tau, temperature), PROPOSERS["sets"]
    families = replay_settings(traces, settings, proposer)
    for options, by_family in zip(settings, families, strict=True):
        requests = [Request(str(n), prompt_of(n), options, n) for n in range(6)]
        live = run(Target(sharp_model()), requests, PROPOSERS, batch_size=2)
        expected = [live[str(n)].rounds for n in range(6)]
        assert [r.rounds for r in replay(traces, options, proposer)] == expected
        assert [r.rounds for r in by_family] == expected


def test_a_replay_that_cannot_be_exact_is_refused() -> None:
    with pytest.raises(ValueError, match="record them again with --hidden"):
        replay(traces_of(0.5, 0.0, hidden=False), asked(0.5, 0.0), PROPOSERS["sets"])
    for rule in LOSSY:
        with pytest.raises(ValueError, match=rf"decode.rule {rule}: .*live"):
            replay(traces_of(0.5, 0.0), asked(0.5, 0.0, rule=rule), PROPOSERS["sets"])
    with pytest.raises(ValueError, match=r"decode.tau 0.7: .*recorded with 0.5"):
        replay(traces_of(0.5, 0.0), asked(0.7, 0.0), PROPOSERS["sets"])


def test_sets_beside_other_methods_in_a_batch_changes_nobody() -> None:
    requests = [
        Request("a", prompt_of(3), asked(0.7, 0.0, budget=5), 3),
        Request("b", prompt_of(5), DecodeOptions(max_new_tokens=LONGEST, ignore_stop=True), 5),
        Request("c", prompt_of(6), asked(0.7, 1.0, budget="auto"), 6),
        Request("d", prompt_of(6), asked(0.7, 0.0, rule="product", budget="auto"), 6),
    ]
    together = run(Target(sharp_model()), requests, PROPOSERS, batch_size=4)
    for request in requests[:2]:
        alone = run(Target(sharp_model()), [request], PROPOSERS)[request.id]
        assert together[request.id].rounds == alone.rounds
    expected = threshold_text(torch.float64, 0.7, 1.0, "top1", 6, LONGEST)
    assert together["c"].token_ids == expected.token_ids


@pytest.mark.parametrize("family", FAMILIES)
def test_exact_equals_threshold_for_every_family(family: str) -> None:
    model = tiny_model(family_spec(family))
    with torch.no_grad():
        model.lm_head.weight.mul_(SHARPNESS)
    target = open_target(model)
    for proposers in (PROPOSERS, {"sets": Nearby()}):
        requests = [
            Request(f"{n} {budget}", prompt_of(n), asked(0.7, n % 2, budget=budget), n)
            for n in (0, 3, 6)
            for budget in (0, 6)
        ]
        results = run(target, requests, proposers, batch_size=3)
        for n in (0, 3, 6):
            assert commits(results[f"{n} 6"]) == commits(results[f"{n} 0"])
