"""Replay and live trials of the same settings on one real tiny target."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from decoders.options import DecodeOptions
from decoders.proposers.order import OrderProposer
from decoders.proposers.remembering import RememberingOrderProposer
from decoders.replay import replay
from decoders.trace import Trace
from drafters.bundle import load_order_model
from models.checkpoint import read_spec
from models.target import CopyBatch
from tests.tune.conftest import InProcess
from tune.config import SweepConfig
from tune.cost import (
    CHAIN_BUDGETS,
    DRAFTER_BUDGETS,
    KNOTS,
    CostCurve,
    copies_in,
    fit_forward,
    measure_cost,
)
from tune.counts import drafting_ends
from tune.live import live_row
from tune.problems import ProblemSet, heldout
from tune.recording import open_traces, record_missing, trace_manifest
from tune.replaying import open_replay_proposer, replay_row

COST = CostCurve(forward=tuple(0.01 * k for k in KNOTS), drafter={"order": (0.001, 0.002, 0.003)})


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("cap", [1.0, 0.9])
@pytest.mark.parametrize("method", ["chain", "order"])
def test_a_replayed_setting_has_the_forwards_of_the_live_one(
    sweep_config: SweepConfig, group: InProcess, method: str, cap: float, temperature: float
) -> None:
    config = sweep_config
    options = config.options(method=method, budget=5, cap=cap, temperature=temperature)
    draft_free = config.draft_free(cap, temperature)
    problems = heldout(config.tasks, config.tasks.live)
    traces = group.record(problems.rows, draft_free)
    replayed = replay_row(
        "r", options, traces, open_replay_proposer(method, config), COST, {}, None
    )
    baseline = live_row("b", draft_free, config, group, None)
    live = live_row("l", options, config, group, baseline)
    assert (live.certificate, live.num_different) == ("exact", 0)
    for field in ("nfe", "forwards", "tokens_per_forward", "drafts_per_round", "drafting_ends"):
        assert getattr(replayed, field) == getattr(live, field), field
    assert replayed.nfe_factor == live.nfe_factor
    assert live.correct.keys() == {p.id for p in problems.problems}


def test_the_reference_is_measured_alone_and_counts_as_one(
    sweep_config: SweepConfig, group: InProcess
) -> None:
    row = live_row("ref", sweep_config.reference, sweep_config, group, None)
    assert (row.speed_reference, row.nfe_factor, row.nfe_factor_reference) == (1.0, 1.0, 1.0)
    assert (row.certificate, row.drafting_ends) == ("exact", None)


def test_ratios_to_the_reference_go_through_the_baseline(
    sweep_config: SweepConfig, group: InProcess
) -> None:
    config = sweep_config
    baseline = live_row("b", config.draft_free(0.9, 0.0), config, group, None)
    row = live_row("l", config.options(method="chain", cap=0.9), config, group, baseline)
    assert row.speed is not None
    assert baseline.speed_reference is not None
    assert baseline.nfe_factor_reference is not None
    assert row.speed_reference == pytest.approx(row.speed.median * baseline.speed_reference)
    assert row.nfe is not None
    reference = live_row("ref", config.reference, config, group, None)
    assert row.nfe_factor_reference == pytest.approx((reference.nfe or 0) / row.nfe)


def test_what_is_recorded_is_not_recorded_again(
    sweep_config: SweepConfig, group: InProcess, sweep_target: Path, tmp_path: Path
) -> None:
    problems, rule = heldout(sweep_config.tasks, 2), sweep_config.reference
    manifest = trace_manifest("t", "d", "float64", read_spec(sweep_target), problems.digest, rule)
    store = open_traces(tmp_path, manifest)
    counts: list[int] = []
    record_missing(group, store, problems, rule, counts.append)
    assert sum(counts) == len(problems.problems) == len(list(store.load()))
    calls = group.num_calls
    record_missing(group, store, problems, rule, counts.append)
    assert group.num_calls == calls
    other = trace_manifest("t", "d", "float32", read_spec(sweep_target), problems.digest, rule)
    assert open_traces(tmp_path, other).folder != store.folder


def test_traces_are_found_again_where_the_target_has_moved_since(
    sweep_target: Path, tmp_path: Path
) -> None:
    spec = read_spec(sweep_target)
    here, there = (
        open_traces(tmp_path, trace_manifest(place, "d", "float64", spec, "p", DecodeOptions()))
        for place in ("/here/target", "/there/target")
    )
    assert there.folder == here.folder


def test_two_sweeps_that_record_at_once_leave_each_problem_once(
    sweep_config: SweepConfig, group: InProcess, sweep_target: Path, tmp_path: Path
) -> None:
    problems, rule = heldout(sweep_config.tasks, 2), sweep_config.reference
    manifest = trace_manifest("t", "d", "float64", read_spec(sweep_target), problems.digest, rule)

    class Overtaken(InProcess):
        def record(
            self, rows: Sequence[Mapping[str, Any]], options: DecodeOptions, hidden: bool = False
        ) -> list[Trace]:
            first = ProblemSet(problems.problems[:3])
            record_missing(group, open_traces(tmp_path, manifest), first, rule, ignore)
            return super().record(rows, options, hidden)

    store = open_traces(tmp_path, manifest)
    record_missing(Overtaken(group.engine), store, problems, rule, ignore)
    ids = [trace.request.id for trace in store.load()]
    assert ids == [problem.id for problem in problems.problems]
    assert store.recorded_ids() == set(ids)


def ignore(count: int) -> None:
    """A report that nobody reads."""


def test_remembered_scores_draft_the_same(
    sweep_config: SweepConfig, group: InProcess, sweep_target: Path
) -> None:
    traces = group.record(heldout(sweep_config.tasks, 2).rows, sweep_config.reference)
    model = load_order_model(sweep_target / "order", sweep_target)
    remembering, plain = RememberingOrderProposer(model), OrderProposer(model)
    for budget, gamma in ((6, 0.0), (3, 0.0), (6, 0.05), (6, 0.0)):
        options = DecodeOptions(method="order", budget=budget, gamma=gamma, max_new_tokens=24)
        found = replay(traces, options, remembering)
        assert [r.rounds for r in found] == [r.rounds for r in replay(traces, options, plain)]


def test_the_cost_curve_is_found_again_from_runs_that_it_made() -> None:
    true = CostCurve(forward=(0.010, 0.011, 0.014, 0.019, 0.030, 0.055))
    rounds = [
        [("prefill", 0), ("open", 0), *[("verify" if b else "step", b)] * 40, ("verify", b // 2)]
        for b in CHAIN_BUDGETS
    ]
    fitted = fit_forward([(r, true.seconds(r, DecodeOptions())) for r in rounds])
    assert fitted == pytest.approx(true.forward, rel=1e-6)


def test_more_copies_than_were_measured_cost_more() -> None:
    options = DecodeOptions(method="order", budget=62)
    assert COST.seconds([("verify", 62)], options) == pytest.approx(0.63 + 0.003 + 30 * 0.001 / 24)
    short = CostCurve(forward=(0.01, 0.01, 0.01, 0.01, 0.02, 0.03))
    assert short.forward_seconds([("verify", 64)]) == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("values", "drafts", "end"),
    [
        ({"method": "chain", "budget": 4}, [4, 4, 3], "budget"),
        ({"method": "chain", "budget": 9}, [4, 4, 9], "block"),
        ({"method": "order", "gamma": 0.1}, [1, 2, 8], "gamma"),
        ({"method": "graph", "prune": 0.3}, [1, 2, 8], "prune"),
        ({"method": "simsd", "gamma": 4}, [4, 4, 1], "gamma"),
        ({"method": "standard"}, [0, 0], None),
    ],
)
def test_it_is_told_what_ends_drafting(
    values: dict[str, Any], drafts: list[int], end: str | None
) -> None:
    assert drafting_ends(drafts, DecodeOptions.model_validate(values)) == end


def test_every_block_but_the_first_is_opened_beside_the_one_that_is_stored(
    sweep_config: SweepConfig, group: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    target = group.engine.target
    forward = target.forward

    def count(batch: CopyBatch) -> Tensor:
        seen.append(len(batch.tokens_CL))
        return forward(batch)

    monkeypatch.setattr(target, "forward", count)
    prompt = heldout(sweep_config.tasks, 1).rows[:1]
    options = sweep_config.options(method="chain", budget=3, cross_block=True)
    row = group.generate(prompt, options, trace=True)[0]
    rounds = [(r["kind"], r["drafts"]) for r in row["rounds"] if r["kind"] != "prefill"]
    assert sum(kind == "open" for kind, _ in rounds) > 1
    assert copies_in(rounds) == seen


def test_costs_are_measured_and_never_fall_with_copies(
    sweep_config: SweepConfig, group: InProcess
) -> None:
    prompt = heldout(sweep_config.tasks, 1).rows[0]
    cost = measure_cost(group, prompt, sweep_config.reference, ("chain", "order"))
    assert len(cost.forward) == len(KNOTS)
    assert min(cost.forward) > 0
    assert list(cost.forward) == sorted(cost.forward)
    assert cost.drafter.keys() == {"order"}
    assert len(cost.drafter["order"]) == len(DRAFTER_BUDGETS)
