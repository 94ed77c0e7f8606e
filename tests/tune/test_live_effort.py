"""How much a live trial measures: until its interval is narrow, or until it cannot win."""

from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.interval import is_narrow, median_interval
from tests.tune.conftest import InProcess
from tests.tune.rows import chain, row, standard
from tune.config import LiveConfig, SweepConfig, TasksConfig
from tune.hopeless import best_so_far, why_hopeless
from tune.live import live_row
from tune.pairs import Pairs, Side
from tune.row import Spread, TrialRow

REFERENCE = row("ref", standard())


def spread(low: float, high: float) -> Spread:
    middle = (low + high) / 2
    return Spread(median=middle, q25=middle, q75=middle, low=low, high=high)


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=60))
def test_the_interval_of_a_median_holds_it_in_at_least_95_percent(values: list[float]) -> None:
    found = median_interval(values)
    n = len(values)
    if n < 6:
        assert found is None
        return
    assert found is not None
    ordered = sorted(values)
    below = max(i for i in range(n) if ordered[i] == found[0])
    above = min(i for i in range(n) if ordered[i] == found[1])
    rank = min(below, n - 1 - above) + 1
    outside = 2 * sum(comb(n, k) for k in range(rank)) / 2**n
    assert outside <= 0.05 or found[0] == ordered[rank - 2], "ties only widen it"
    assert found[0] <= ordered[n // 2] <= found[1]


def test_six_values_are_the_fewest_that_say_something() -> None:
    assert median_interval([1, 2, 3, 4, 5]) is None
    assert median_interval([6, 2, 3, 4, 5, 1]) == (1, 6)
    assert median_interval(range(1, 13)) == (3, 10), "the textbook's third of twelve"


def test_narrow_is_a_share_of_the_middle() -> None:
    assert is_narrow((1.91, 2.09), 0.05)
    assert not is_narrow((1.8, 2.2), 0.05)
    assert not is_narrow(None, 1.0), "unknown is not narrow"


def test_hopeless_is_slower_than_standard_or_than_the_best_ones_lower_end() -> None:
    best = row("best", chain(4), speed=2.0).model_copy(update={"speed": spread(1.8, 2.2)})
    assert judged(spread(0.9, 1.1), REFERENCE, None) is None
    assert "slower than it" in (judged(spread(0.7, 0.9), REFERENCE, None) or "")
    assert judged(spread(1.5, 1.85), REFERENCE, best) is None
    assert "below the best one's 1.80" in (judged(spread(1.5, 1.7), REFERENCE, best) or "")
    own_base = row("base", standard(0.9), speed=1.2).model_copy(update={"speed": spread(1.1, 1.3)})
    assert judged(spread(1.5, 1.7), own_base, best) is None, "its own baseline is faster"
    assert "below the best one's 1.80" in (judged(spread(1.0, 1.2), own_base, best) or "")
    assert judged(spread(1.3, 1.45), own_base, best) is None, "its baseline's speed is not so sure"
    beside = row("beside", chain(4, 0.9), speed=2.0).model_copy(
        update={"speed": spread(1.5, 1.9), "speed_reference": 2.04}
    )
    assert "the best one's 1.80" in (judged(spread(1.3, 1.45), own_base, beside) or ""), (
        "which concerns both alike where they have the same one"
    )
    unknown = Spread(median=0.1, q25=0.1, q75=0.1)
    assert judged(unknown, REFERENCE, best) is None, "too few pairs to say so"


def judged(found: Spread, baseline: TrialRow, best: TrialRow | None) -> str | None:
    return why_hopeless(found, baseline, best, REFERENCE.options)


def test_the_interval_over_standard_decoding_holds_the_baselines_own() -> None:
    own = row("own", chain(4, 0.9), speed=2.4).model_copy(update={"speed": spread(1.9, 2.1)})
    assert own.speed_interval == pytest.approx((2.28, 2.52)), "as rows of before are read"
    found = own.model_copy(update={"baseline_speed": spread(1.1, 1.3)}).speed_interval
    assert found == pytest.approx((2.169, 2.636), abs=1e-3), "distances add up in squares"
    silent = own.model_copy(update={"speed": Spread(median=0, q25=0, q75=0, low=0, high=0)})
    assert silent.model_copy(update={"baseline_speed": spread(1.1, 1.3)}).speed_interval is None
    assert silent.speed_interval == (0, 0), "no token was written"
    unsure = row("base", standard(0.9), speed=1.2).speed
    assert own.model_copy(update={"baseline_speed": unsure}).speed_interval is None


def test_only_a_drafting_trial_that_may_win_is_the_best_so_far(sweep_config: SweepConfig) -> None:
    differs = row("differs", chain(4), speed=9.0, certificate="differs")
    fast = row("fast", chain(5), speed=2.0)
    assert best_so_far([REFERENCE, differs], "ref", sweep_config) is None
    assert best_so_far([REFERENCE, differs, fast], "ref", sweep_config) == fast


def measured(config: SweepConfig, effort: LiveConfig) -> SweepConfig:
    tasks = TasksConfig(names=("words",), recorded=3, live=3)
    return config.model_copy(
        update={"live": effort, "tasks": tasks, "decode": {"max_new_tokens": 8}}
    )


@pytest.mark.parametrize(("precision", "passes"), [(None, 2), (1e-9, 4), (0.999, 2)])
def test_passes_go_on_until_the_interval_is_narrow_or_there_were_enough(
    sweep_config: SweepConfig, group: InProcess, precision: float | None, passes: int
) -> None:
    effort = LiveConfig(repeats=2, precision=precision, max_repeats=4)
    config = measured(sweep_config, effort)
    baseline = live_row("b", config.reference, config, group, None)
    found = live_row("l", config.options(method="chain"), config, group, baseline)
    assert baseline.passes == 2, "a side alone has no interval to narrow"
    assert found.passes == passes
    assert found.speed is not None
    assert found.speed.interval is not None, "six pairs"
    assert found.speed.interval[0] <= found.speed.median <= found.speed.interval[1]
    assert found.latency_p95 is not None


def test_a_trial_is_judged_behind_the_first_problems_and_between_passes(
    sweep_config: SweepConfig, group: InProcess
) -> None:
    config = measured(sweep_config, LiveConfig(repeats=2, first=2))
    seen: list[tuple[int, int]] = []

    def judge(pairs: Pairs) -> None:
        seen.append((len(pairs.own.rows), sum(map(len, pairs.own.seconds))))

    live_row("b", config.reference, config, group, None, judge)
    assert seen == [(2, 2), (3, 3)], "what is measured to its end is not stopped"


def test_a_stopped_trial_says_why_and_keeps_what_it_found(
    sweep_config: SweepConfig, group: InProcess
) -> None:
    config = measured(sweep_config, LiveConfig(repeats=2, first=2))
    baseline = live_row("b", config.reference, config, group, None)
    options = config.options(method="chain")
    found = live_row("l", options, config, group, baseline, lambda pairs: "too slow")
    assert (found.status, found.error, found.done) == ("stopped", "too slow", False)
    assert (found.n, found.certificate, len(found.correct)) == (2, "exact", 2)


def test_one_long_answer_makes_no_other_pair_faster() -> None:
    base = Side(tokens=[10] * 8, seconds=[[1.0]] * 8)
    rambling = Side(tokens=[10] * 7 + [80], seconds=[[1.0]] * 7 + [[8.0]])
    found = Pairs(rambling, base).speed()
    assert (found.median, found.interval) == (1.0, (1.0, 1.0)), "as many tokens a second in each"
