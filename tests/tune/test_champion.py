"""Who wins a sweep, on rows made by hand."""

import pytest

from tests.tune.rows import chain, row, standard
from tune.champion import choose_champion, choose_live
from tune.config import ChampionPolicy
from tune.row import TrialRow

POLICY = ChampionPolicy()
REFERENCE = row("ref", standard())


def winner(*rows: TrialRow, policy: ChampionPolicy = POLICY) -> str | None:
    champion = choose_champion([REFERENCE, *rows], "ref", policy)
    return champion and champion.key


def test_the_fastest_exact_trial_wins() -> None:
    slow, fast = row("slow", chain(2), speed=1.5), row("fast", chain(8), speed=2.0)
    assert winner(slow, fast) == "fast"


def test_draft_free_wins_where_every_draft_is_slower() -> None:
    assert winner(row("slow", chain(32), speed=0.4, nfe_factor=3.0)) == "ref"


def test_a_trial_that_differs_never_wins_by_default() -> None:
    assert winner(row("differs", chain(8), speed=3.0, certificate="differs")) == "ref"
    assert winner(row("approximate", chain(8), speed=3.0, certificate="approximate")) == "ref"


def test_replayed_and_failed_trials_do_not_win() -> None:
    replayed = row("replayed", chain(8), fidelity="replay", speed=9.0)
    failed = row("failed", chain(8), speed=9.0).model_copy(update={"status": "failed"})
    assert winner(replayed, failed) == "ref"


def test_a_trial_clearly_less_accurate_than_standard_does_not_win() -> None:
    worse = row("worse", chain(8, cap=0.5), speed=3.0, correct="+-------")
    assert winner(worse) == "ref"


def test_one_reply_fewer_of_eight_is_within_the_interval() -> None:
    assert winner(row("near", chain(8, cap=0.5), speed=3.0, correct="+++++++-")) == "near"


def test_recorded_replies_of_the_rule_count_too() -> None:
    fast = row("fast", chain(8, cap=0.5), speed=3.0)
    recorded = row("r1", standard(), fidelity="replay")
    bad = row("r2", standard(cap=0.5), fidelity="replay", correct="--------")
    assert winner(fast, recorded, bad) == "ref"


def test_without_the_reference_there_is_no_champion() -> None:
    assert choose_champion([row("fast", chain(8), speed=2.0)], "ref", POLICY) is None


def test_an_approximate_trial_wins_only_within_its_bound() -> None:
    policy = ChampionPolicy(approximate=True, max_loss=0.2)
    same = row("same", chain(8), speed=3.0, certificate="approximate")
    worse = row("worse", chain(8), speed=4.0, certificate="approximate", correct="++++++--")
    assert winner(same, worse, policy=policy) == "same"
    strict = ChampionPolicy(approximate=True, max_loss=0.1)
    assert winner(same, policy=strict) == "ref", "eight equal replies cannot bound a loss at 0.1"
    exact = row("exact", chain(8), speed=2.0)
    assert winner(same, exact, policy=strict) == "exact", "its replies are the reference's"


def test_an_approximate_champion_needs_a_bound() -> None:
    with pytest.raises(ValueError, match=r"champion\.max_loss"):
        ChampionPolicy(approximate=True)


def test_bounds_hold_for_exact_trials_too() -> None:
    near = row("near", chain(8, cap=0.5), speed=3.0, correct="+++++++-")
    assert winner(near, policy=ChampionPolicy(max_loss=0.05)) == "ref"
    quick, slow = (
        row(name, chain(8), speed=speed).model_copy(update={"latency_p95": seconds})
        for name, speed, seconds in (("quick", 1.5, 0.9), ("slow", 2.0, 1.1))
    )
    assert winner(quick, slow) == "slow"
    assert winner(quick, slow, policy=ChampionPolicy(max_latency=1.0)) == "quick"
    assert winner(slow, policy=ChampionPolicy(max_latency=0.5)) is None, "not the reference either"


def test_the_first_objective_says_who_wins_and_the_next_ones_among_equals() -> None:
    fast = row("fast", chain(2), speed=2.0, nfe_factor=1.5)
    frugal = row("frugal", chain(8), speed=1.2, nfe_factor=3.0)
    also = row("also", chain(9), speed=1.3, nfe_factor=3.0)
    rows = [REFERENCE, fast, frugal, also]
    assert choose_champion(rows, "ref", POLICY, ("speed",)) == fast
    assert choose_champion(rows, "ref", POLICY, ("nfe", "speed")) == also


def test_settings_that_seem_too_slow_are_tried_last() -> None:
    reference = row("r", standard(), fidelity="replay")
    rows = [
        row(name, chain(budget), fidelity="replay", speed=speed).model_copy(
            update={"latency_p95": seconds}
        )
        for name, budget, speed, seconds in (("a", 4, 2.0, 1.5), ("b", 5, 1.5, 0.5))
    ]
    found = choose_live([reference, *rows], reference, 2, policy=ChampionPolicy(max_latency=1.0))
    assert [r.key for r in found] == ["b", "a"]


def test_live_trials_are_the_best_of_each_method_and_rule_then_the_next() -> None:
    reference = row("r", standard(), fidelity="replay")
    rows = [
        reference,
        row("a", chain(4), fidelity="replay", speed=2.0, nfe_factor=2.0),
        row("b", chain(5), fidelity="replay", speed=1.9, nfe_factor=2.1),
        row("c", chain(4, cap=0.9), fidelity="replay", speed=1.5, nfe_factor=2.2),
        row("d", chain(32, cap=0.9), fidelity="replay", speed=0.5, nfe_factor=4.0),
    ]
    assert [r.key for r in choose_live(rows, reference, 3)] == ["a", "c", "d"]
    assert [r.key for r in choose_live(rows, reference, 9)] == ["a", "c", "d", "b"]


def test_a_setting_that_cannot_win_is_not_tried_live() -> None:
    reference = row("r", standard(), fidelity="replay")
    hopeless = row("h", chain(4, cap=0.5), fidelity="replay", speed=9.0, correct="--------")
    assert choose_live([reference, hopeless], reference, 3) == []
