"""Sweep configurations: what they refuse, and that every drawn setting is a valid one."""

from pathlib import Path
from typing import Any

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.configuration import load_config
from decoders.options import COLDEST, OPTIONS_OF, PROPOSERS, DecodeOptions
from tests.reference.families import family_spec
from tune.check import fitting_space
from tune.config import LiveConfig, SweepConfig
from tune.space import (
    INACTIVE,
    KNOBS,
    draw_setting,
    first_settings,
    flat_knobs,
    knobs_of,
    option_values,
    spell,
    spell_space,
)
from tune.space_config import SpaceConfig
from tune.stages import live_settings, with_lossy

optuna.logging.set_verbosity(optuna.logging.WARNING)


def unique(values: st.SearchStrategy[float]) -> st.SearchStrategy[tuple[float, ...]]:
    return st.lists(values, min_size=1, max_size=3, unique=True).map(tuple)


@st.composite
def spaces(draw: st.DrawFn) -> dict[str, Any]:
    shares = st.floats(0, 1, exclude_max=True)
    least = draw(st.integers(0, 32))
    return {
        "methods": draw(st.sampled_from([("chain",), ("order",), ("sets",), (*PROPOSERS, "sets")])),
        "budget": {"least": least, "most": draw(st.integers(least, 32))},
        "gamma": draw(unique(shares)),
        "hedge": draw(unique(shares)),
        "width": draw(st.lists(st.integers(1, 32), min_size=1, max_size=3, unique=True).map(tuple)),
        "prune": draw(unique(shares)),
        "cross_block": draw(unique(st.booleans())),
        "cap": draw(unique(shares)),
        "tau": draw(unique(shares)),
        "temperature": draw(unique(st.just(0.0) | st.floats(COLDEST, 2))),
    }


@settings(deadline=None, max_examples=60)
@given(spaces(), st.integers(0, 1000))
def test_every_drawn_setting_is_valid_for_its_method(space: dict[str, Any], seed: int) -> None:
    config = SweepConfig(space=SpaceConfig.model_validate(space), decode={"top_k": 5, "cap": 0.7})
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    drawn = draw_setting(config.space, study.ask())
    assert drawn.keys() <= OPTIONS_OF[drawn["method"]]
    options = config.options(**drawn)
    assert {name: getattr(options, name) for name in drawn} == drawn
    assert DecodeOptions.model_validate(option_values(options)) == options
    assert config.options(**knobs_of(options)) == options
    assert tuple(flat_knobs(options)) == KNOBS
    assert options.draft_free() in config.rules, "it is recorded"
    assert dict.fromkeys(config.rules, True)[options.draft_free()], "and found by its rule"


def test_knobs_that_a_method_lacks_are_marked() -> None:
    flat = flat_knobs(DecodeOptions(method="chain", budget=4))
    assert flat["gamma"] == flat["hedge"] == INACTIVE
    assert flat["budget"] == 4


def test_names_are_short_and_tell_settings_apart() -> None:
    options = DecodeOptions(method="order", budget=8, gamma=0.01, cap=0.9)
    assert spell(options) == "order budget=8 gamma=0.01 hedge=0.6 cap=0.9 T=0"
    assert spell(DecodeOptions()) == "standard cap=1 T=0"
    crossing = DecodeOptions(method="chain", cross_block=True, draft_refresh=16)
    assert spell(crossing) == "chain budget=8 cross_block=1 draft_refresh=16 cap=1 T=0"


def test_a_plan_names_the_values_of_every_knob_that_a_method_has() -> None:
    assert spell_space(SpaceConfig(), "chain") == (
        "chain: budget 1..32, cap 1 or 0.9, temperature 0, cross_block 0 or 1"
    )
    assert "gamma 0 or 0.01 or 0.03 or 0.1, hedge" in spell_space(SpaceConfig(), "order")


def test_a_search_of_few_trials_sees_every_method() -> None:
    space = SpaceConfig(methods=("chain", "sets", "order"), temperature=(0.0, 0.5))
    found = [DecodeOptions.model_validate(each) for each in first_settings(space)]
    assert [options.method for options in found[:4]] == ["chain", "sets", "order", "chain"]
    assert len(set(map(spell, found))) == len(found) == 2 * (4 + 2 + 4), "crossing, times rules"


def test_the_reference_rule_is_recorded_even_if_the_space_leaves_it_out() -> None:
    config = SweepConfig(space=SpaceConfig(cap=(0.9,)), decode={"temperature": 0.5})
    assert [(rule.cap, rule.temperature) for rule in config.rules] == [(1.0, 0.5), (0.9, 0.0)]


def test_sets_brings_the_threshold_runs_that_it_is_compared_with() -> None:
    config = SweepConfig(space=SpaceConfig(methods=("sets",), tau=(0.9, 0.95)))
    assert [spell(rule) for rule in config.rules] == [
        "standard cap=1 T=0",
        "threshold tau=0.9 T=0",
        "threshold tau=0.95 T=0",
    ]


def test_lossy_rules_are_tried_beside_the_exact_setting() -> None:
    exact = DecodeOptions(method="sets", budget=4, tau=0.8)
    found = with_lossy(exact, ("exact", "product", "cut"))
    assert [spell(options).split("rule=")[1] for options in found] == [
        "exact T=0",
        "product T=0",
        "cut T=0",
    ]
    chain = DecodeOptions(method="chain")
    assert with_lossy(chain, ("product",)) == [chain]
    assert live_settings(DecodeOptions(), found)[:2] == [DecodeOptions(), exact.draft_free()]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"decode": {"method": "chain"}}, r"decode\.method is not shared"),
        ({"decode": {"draft_refresh": 4}}, r"decode\.draft_refresh 4: .*live\.draft_refresh"),
        ({"decode": {"budgett": 3}}, r"decode\.budgett is not shared .*valid: .*budget"),
        ({"decode": {"max_new_tokens": -1}}, r"^decode\.max_new_tokens: -1 must be greater than"),
        ({"seed": -1}, r"^seed: -1 must be greater than or equal to 0$"),
        ({"seed": 2**32}, r"^seed: 4294967296 must be less than 4294967296$"),
        ({"decode": {"max_new_tokens": 0}}, r"^decode\.max_new_tokens 0: .*valid: 1 or more"),
        (
            {"space": {"methods": ["threshold"]}},
            r"space\.methods 'threshold'.*chain, wtree, graph, order, sets",
        ),
        ({"space": {"cap": []}}, r"space\.cap \[\]"),
        ({"space": {"cap": [2.0]}}, r"^space\.cap: 2\.0 must be less than or equal to 1$"),
        ({"space": {"width": [3, 99]}}, r"^space\.width: 99 must be less than or equal to 32$"),
        ({"space": {"gamma": [0.0, 1.5]}}, r"space\.gamma 1\.5 means nothing .*simsd a whole"),
        ({"space": {"budget": {"least": 1, "most": 999}}}, r"1\.\.999 must have .* <= 256"),
        ({"space": {"budget": {"least": 9, "most": 8}}}, r"9\.\.8"),
        ({"space": {"budgets": 3}}, r"space\.budgets: unknown key; valid: budget"),
        ({"tasks": {"names": ["sums"]}}, r"'sums'.*code, gsm8k,.*words"),
        ({"tasks": {"data": {"gsm8k": "x"}}}, r"tasks\.data\.gsm8k: tasks\.names .*lacks it"),
        ({"tasks": {"live": 9, "recorded": 8}}, r"tasks\.live 9"),
        ({"objectives": []}, "objectives"),
    ],
)
def test_bad_configurations_are_refused_by_name(values: dict[str, Any], message: str) -> None:
    from cluster.configuration import validate

    with pytest.raises(ValueError, match=message):
        validate(SweepConfig, values)


def test_a_section_without_keys_takes_those_of_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text("live:\n  # trials: 3\n")
    assert load_config(SweepConfig, file, ["live.trials=5"]).live.trials == 5


def test_the_shipped_configuration_is_valid() -> None:
    file = Path(__file__).parents[2] / "configs" / "sweep.yaml"
    config = load_config(SweepConfig, file)
    assert config.target.path == "sdar-tiny"
    assert config.space.budget.most == 32


def test_a_bidirectional_target_is_swept_without_crossing_blocks() -> None:
    spec, live = family_spec("Dream"), LiveConfig()
    assert fitting_space(SpaceConfig(), live, spec).cross_block == (False,)
    assert fitting_space(SpaceConfig(), live, family_spec("sdar")) == SpaceConfig()
    with pytest.raises(ValueError, match=r"space\.cross_block: the blocks of a bidirectional"):
        fitting_space(SpaceConfig(cross_block=(True,)), live, spec)
    with pytest.raises(ValueError, match=r"live\.draft_refresh: the blocks"):
        fitting_space(SpaceConfig(), LiveConfig(draft_refresh=(8,)), spec)
