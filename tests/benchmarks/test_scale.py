"""The model of a sweep's scaling keeps its own bounds; the store's measurement writes real runs."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.scale import Costs, measure_store, median_seconds, model_rows, simulate
from cluster.tracking import Tracking


def test_without_costs_a_sweep_takes_its_rounds_of_trials() -> None:
    found = simulate(trials=10, groups=4, trial_seconds=2.0, costs=Costs(0.0, 0.0))
    assert found.seconds == 6.0
    assert found.groups_busy == pytest.approx(20 / 24)
    assert (found.driver_busy, found.store_behind) == (0.0, 0.0)


def test_many_groups_wait_for_the_driver_and_a_slow_store_falls_behind() -> None:
    driven = simulate(1000, groups=500, trial_seconds=1.0, costs=Costs(0.01, 0.0))
    assert driven.seconds == pytest.approx(1.0 + 1000 * 0.01)
    assert driven.full == "driver"
    behind = simulate(1000, groups=100, trial_seconds=1.0, costs=Costs(0.001, 0.05))
    assert behind.store_behind > 30
    assert behind.full == "store"
    assert simulate(100, groups=2, trial_seconds=5.0, costs=Costs(0.001, 0.05)).full == "groups"


@settings(max_examples=50, deadline=None)
@given(
    trials=st.integers(1, 60),
    groups=st.integers(1, 20),
    seconds=st.floats(0.1, 5),
    driver=st.floats(0, 0.5),
    store=st.floats(0, 0.5),
)
def test_no_part_does_more_than_there_is_time_for(
    trials: int, groups: int, seconds: float, driver: float, store: float
) -> None:
    found = simulate(trials, groups, seconds, Costs(driver, store))
    least = max(seconds * -(-trials // groups), seconds + trials * driver)
    assert found.seconds >= least - 1e-9
    for share in (found.groups_busy, found.driver_busy, found.store_busy):
        assert 0 <= share <= 1 + 1e-9
    assert found.store_behind >= store - 1e-9


def test_every_modelled_row_says_so_and_how_runs_are_logged() -> None:
    rows = model_rows(call=0.002, store=0.05, trials=20)
    assert {row["basis"] for row in rows} == {"model"}
    assert {row["logging"] for row in rows} == {"in line", "behind"}
    assert all(row["store_behind"] == 0 for row in rows if row["logging"] == "in line")


def test_the_store_is_measured_by_runs_that_stand_there(tracking: Tracking) -> None:
    assert measure_store(tracking, 2) > 0
    [run] = [r for r in tracking.trials(tracking.find("scale").run_id) if r.name == "trial 1"]
    assert run.metrics["metric3"] == 3.0
    assert tracking.read(run.run_id, "problems.json")


def test_a_median_leaves_the_warm_up_out() -> None:
    seen: list[int] = []
    median_seconds(seen.append, 3)
    assert seen == [-1, 0, 1, 2]
