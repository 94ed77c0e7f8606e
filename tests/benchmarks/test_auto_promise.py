"""What the benchmark of ``budget: auto`` computes from pairs of runs."""

from pathlib import Path

import numpy as np
import pytest

from actors.loading import open_engine
from actors.runner import engine_runner
from benchmarks.auto_cells import AUTO, cells_of, rules_of, settings_of
from benchmarks.auto_promise import (
    FEWEST_BATCHES,
    ORACLE,
    ORACLE_BUDGETS,
    compare_with_best_fixed,
    intervals,
    measure_cell,
    oracle_allows,
    table_rows,
)
from benchmarks.paired import BASELINE
from benchmarks.spot.cells import Drafting
from benchmarks.spot.replaying import draft_free_tally, replay_tally
from decoders.cost_curve import CostCurve
from decoders.options import DecodeOptions
from decoders.prompts import PromptRow
from drafters.config import DrafterConfig
from models.config import TargetConfig


def seconds_of(ratios: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Draft-free and own seconds with these ratios."""
    return ratios, np.ones_like(ratios)


def test_intervals_hold_their_value_and_narrow_with_more_batches() -> None:
    draw = np.random.default_rng(1)
    widths = []
    for count in (10, 250):
        ratios = draw.lognormal(0.3, 0.2, (2, count))
        found = intervals(*seconds_of(ratios))
        assert found["speed"] == pytest.approx(float(np.median(ratios)))
        assert found["total"] == pytest.approx(ratios.mean())
        for name in ("speed", "total"):
            low, value, high = (found[f"{name}{end}"] for end in ("_low", "", "_high"))
            assert low < value < high
            widths.append(high - low)
    assert widths[2] < widths[0] / 2
    assert widths[3] < widths[1] / 2


def test_an_interval_holds_the_truth_as_often_as_it_says() -> None:
    """Bootstrap intervals of few batches are a little narrow, so nine in ten will do."""
    draw = np.random.default_rng(3)
    held = 0
    for seed in range(200):
        found = intervals(*seconds_of(draw.lognormal(0.0, 0.2, (1, 16))), seed=seed)
        held += found["speed_low"] <= 1.0 <= found["speed_high"]
    assert 0.88 <= held / 200 <= 0.99


def test_batches_are_resampled_whole() -> None:
    """One batch repeated tells nothing new: its repeats do not narrow the interval."""
    ratios = np.random.default_rng(2).lognormal(0, 0.3, (1, 9))
    repeated = intervals(*seconds_of(np.repeat(ratios, 6, axis=0)))
    assert repeated == pytest.approx(intervals(*seconds_of(ratios)))


def test_few_batches_have_no_interval() -> None:
    found = intervals(*seconds_of(np.full((2, FEWEST_BATCHES - 1), 1.5)))
    assert (found["speed"], found["total"]) == (1.5, 1.5)
    assert found["speed_low"] is found["speed_high"] is found["total_low"] is None


def test_one_slow_batch_shows_in_the_total() -> None:
    """Sixteen batches of a second; one of them takes four."""
    own = np.ones((1, 16))
    own[0, 5] = 4.0
    found = intervals(np.ones((1, 16)), own)
    assert found["speed"] == 1.0
    assert found["total"] == pytest.approx(16 / 19)


def test_auto_is_compared_with_what_took_least() -> None:
    seconds = {
        "chain auto": [[2.0, 4.0]],
        "chain 4": [[2.0, 2.0]],
        "chain 8": [[3.0, 3.0]],
        "order auto": [[5.0, 5.0]],
        "order 4": [[9.0, 9.0]],
    }
    rows = [{"setting": label} for label in seconds]
    for method in ("chain", "order"):
        compare_with_best_fixed(rows, seconds | {BASELINE: [[4.0, 5.0]]}, method)
    chain, order = rows[0], rows[3]
    assert (chain["best_fixed"], chain["to_best_fixed"]) == ("chain 4", pytest.approx(0.75))
    assert (order["best_fixed"], order["to_best_fixed"]) == ("draft-free", pytest.approx(0.9))
    assert [row for row in rows if "best_fixed" in row] == [chain, order]


def test_the_oracles_room_is_that_of_its_best_budget(tiny_folder: Path) -> None:
    """Where copies are free it is that of the largest budget; where each costs a forward, none."""
    config = TargetConfig.model_validate({"path": str(tiny_folder), "dtype": "float64"})
    engine = open_engine(config, DrafterConfig(), [ORACLE])
    options = DecodeOptions(max_new_tokens=12, ignore_stop=True)
    traces = engine.record([PromptRow(id="1", prompt_ids=(5, 6, 7))], options)
    oracle = engine.proposers[ORACLE]
    free, dear = (
        CostCurve(knots=(1, 65), prefixes=(0,), seconds=((1.0, most),)) for most in (1.0, 6500.0)
    )
    factors = [
        draft_free_tally(traces).nfe / replay_tally(traces, Drafting(ORACLE, b), oracle).nfe
        for b in ORACLE_BUDGETS
    ]
    assert oracle_allows(traces, oracle, free) == pytest.approx(max(factors))
    assert oracle_allows(traces, oracle, dear) < 1


def test_only_the_order_models_fixed_settings_have_a_floor() -> None:
    labels = [s.label for s in settings_of(["chain", "order"], [4, 8], 0.03)]
    assert labels == [
        "chain auto",
        "chain 4",
        "chain 8",
        "order auto",
        "order 4 gamma 0.03",
        "order 8 gamma 0.03",
    ]


def test_a_cell_says_what_the_promise_names(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASKAHEAD_CACHE", str(tmp_path))
    config = TargetConfig.model_validate({"path": str(tiny_folder), "dtype": "float64"})
    engine = open_engine(config, DrafterConfig(), ["chain", ORACLE])
    rows = [PromptRow(id=str(i), prompt_ids=(5, 6, 7 + i)) for i in range(3)]
    settings = settings_of(["chain"], [2], 0.0)
    rule = DecodeOptions(cap=0.9, max_new_tokens=12, ignore_stop=True, batch_size=2)
    found = measure_cell(
        engine, engine_runner(engine, "cpu"), rows, rule, settings, 1, lambda n, of: None
    )
    auto, fixed = found
    assert (auto["setting"], fixed["setting"]) == (f"chain {AUTO}", "chain 2")
    assert {row["certificate"] for row in found} == {"exact 3/3"}
    assert (auto["n"], auto["batches"]) == (3, 2)
    assert auto["nfe_factor"] >= 1
    first, options = engine.auto, settings[0].over(rule)
    assert first.balance(options).verified > 0
    again = measure_cell(
        engine, engine_runner(engine, "cpu"), rows, rule, settings, 1, lambda n, of: None
    )
    assert engine.auto is not first, "a cell starts anew"
    assert engine.auto.balance(options) is not first.balance(options)
    assert {row["certificate"] for row in again} == {"exact 3/3"}
    [shown] = table_rows(
        [{"task": "t", "batch": 2, "T": 0.0, "rule": "cap 0.9"} | row for row in found]
    )
    assert shown["setting"] == f"chain {AUTO}"


def test_sets_are_compared_with_threshold_decoding_and_orders_with_standard() -> None:
    rules = rules_of(["chain", "sets", "order"], [1.0, 0.9], [0.95])
    assert rules == [
        ({"method": "standard", "cap": 1.0}, ["chain", "order"]),
        ({"method": "standard", "cap": 0.9}, ["chain", "order"]),
        ({"method": "threshold", "tau": 0.95}, ["sets"]),
    ]
    assert rules_of(["sets"], [1.0], [0.9]) == [({"method": "threshold", "tau": 0.9}, ["sets"])]
    for setting in settings_of(["sets"], [4], 0.03):
        over = setting.over(DecodeOptions(method="threshold", tau=0.95))
        assert (over.method, over.tau) == ("sets", 0.95)
        assert over.draft_free() == DecodeOptions(method="threshold", tau=0.95)


def test_a_cell_says_its_names_and_one_that_cannot_run_is_refused_before_any_does() -> None:
    rules = rules_of(["chain", "sets"], [0.9], [0.95])
    cells = cells_of(["words"], [1, 4], [0.0], rules, [8], 0.03)
    names = [(cell.names["batch"], cell.names["rule"]) for cell in cells]
    assert names == [(1, "cap 0.9"), (1, "tau 0.95"), (4, "cap 0.9"), (4, "tau 0.95")]
    for tasks, budgets, said in ((["sums"], [8], "'sums'"), (["words"], [8, 400], "400")):
        with pytest.raises(ValueError, match=said):
            cells_of(tasks, [1], [0.0], rules, budgets, 0.03)
