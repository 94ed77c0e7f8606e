"""Options: strict where a user names a method, lenient where a sweep shares them."""

import pytest
from pydantic import ValidationError

from decoders.options import METHODS, OPTIONS_OF, DecodeOptions
from decoders.prompts import PromptRow


@pytest.mark.parametrize(
    ("method", "option", "value"),
    [
        ("standard", "budget", 4),
        ("standard", "gamma", 0.1),
        ("standard", "tau", 0.9),
        ("threshold", "cap", 0.9),
        ("threshold", "budget", 4),
        ("chain", "hedge", 0.5),
        ("chain", "gamma", 0.1),
        ("chain", "tau", 0.9),
        ("order", "tau", 0.9),
        ("order", "rule", "exact"),
        ("sets", "cap", 0.9),
        ("sets", "hedge", 0.5),
    ],
)
def test_an_option_that_the_method_does_not_know_is_refused_with_the_valid_ones(
    method: str, option: str, value: float
) -> None:
    with pytest.raises(ValidationError, match=f"{option} is not an option of method {method}") as e:
        DecodeOptions.model_validate({"method": method, option: value})
    for valid in OPTIONS_OF[method]:
        assert valid in str(e.value)


def test_an_option_at_its_default_is_refused_all_the_same() -> None:
    with pytest.raises(ValidationError, match="budget"):
        DecodeOptions(method="standard", budget=8)


def test_lenient_drops_what_the_method_does_not_know_and_nothing_else() -> None:
    shared = {"budget": 4, "gamma": 0.1, "hedge": 0.3, "cap": 0.9, "tau": 0.8, "temperature": 0.7}
    kept = {
        method: DecodeOptions.lenient(method=method, **shared).model_fields_set
        for method in METHODS
    }
    assert kept["standard"] == {"method", "cap", "temperature"}
    assert kept["threshold"] == {"method", "tau", "temperature"}
    assert kept["chain"] == {"method", "cap", "temperature", "budget"}
    assert kept["order"] == {"method", "cap", "temperature", "budget", "gamma", "hedge"}


def test_lenient_still_refuses_a_bad_value_and_an_unknown_method() -> None:
    with pytest.raises(ValidationError, match="budget"):
        DecodeOptions.lenient(method="chain", budget=-1)
    with pytest.raises(ValidationError, match="standard"):
        DecodeOptions.lenient(method="greedy")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("cap", 1.1),
        ("cap", -0.1),
        ("temperature", -0.5),
        ("temperature", float("nan")),
        ("top_p", 0.0),
        ("top_p", 1.5),
        ("top_k", -1),
        ("max_new_tokens", -1),
        ("batch_size", 0),
        ("confidence", "top2"),
        ("method", "greedy"),
        ("colour", "red"),
    ],
)
def test_a_bad_value_is_refused_by_name(option: str, value: object) -> None:
    with pytest.raises(ValidationError, match=option):
        DecodeOptions.model_validate({option: value})


def test_a_budget_of_none_drafts_nothing() -> None:
    assert not DecodeOptions(method="chain", budget=0).drafts
    assert DecodeOptions(method="chain", budget=1).drafts
    assert not DecodeOptions().drafts


def test_draft_free_keeps_everything_that_decides_the_output() -> None:
    shared = {"cap": 0.9, "temperature": 0.7, "top_k": 5, "confidence": "chosen", "seed": 3}
    for method in ("chain", "order"):
        options = DecodeOptions.lenient(method=method, budget=4, max_new_tokens=9, **shared)
        base = options.draft_free()
        assert base.method == "standard"
        assert base.commit_rule() == options.commit_rule()
        assert (base.seed, base.max_new_tokens) == (3, 9)
    threshold = DecodeOptions(method="threshold", tau=0.7)
    assert threshold.draft_free().commit_rule() == threshold.commit_rule()
    assert threshold.draft_free().method == "threshold"


@pytest.mark.parametrize(
    "change",
    [
        {"cap": 0.9},
        {"confidence": "chosen"},
        {"temperature": 1.0},
        {"max_new_tokens": 5},
        {"ignore_stop": True},
        {"method": "threshold"},
    ],
    ids=str,
)
def test_what_decides_a_trajectory_is_in_the_rule(change: dict[str, object]) -> None:
    assert DecodeOptions.lenient(**change).commit_rule() != DecodeOptions().commit_rule()


def test_how_it_is_drafted_is_not_in_the_rule() -> None:
    base = DecodeOptions(method="order", budget=1, gamma=0.0, hedge=0.0)
    other = DecodeOptions(method="order", budget=9, gamma=0.3, hedge=0.9, batch_size=4)
    assert base.commit_rule() == other.commit_rule() == DecodeOptions(method="chain").commit_rule()


def test_filters_are_in_the_rule_of_a_run_that_samples() -> None:
    assert (
        DecodeOptions(temperature=1.0, top_k=3).commit_rule()
        != DecodeOptions(temperature=1.0).commit_rule()
    )
    assert DecodeOptions(top_k=3).commit_rule() == DecodeOptions().commit_rule(), (
        "argmax passes every filter"
    )


@pytest.mark.parametrize("value", [-0.5, 1e-46, 1e300, float("inf"), float("nan")])
def test_a_temperature_that_no_score_survives_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="must be 0"):
        DecodeOptions(temperature=value)
    with pytest.raises(ValueError, match="must be 0"):
        PromptRow(id="a", prompt="b", temperature=value)


def test_sets_follows_threshold_decoding_and_promises_it_by_the_exact_rule_alone() -> None:
    sets = DecodeOptions(method="sets", tau=0.7, budget=4)
    free = DecodeOptions(method="threshold", tau=0.7)
    assert sets.draft_free() == free
    assert sets.commit_rule() == free.commit_rule()
    assert sets.promises_equality
    assert sets.reads_hidden
    assert not sets.model_copy(update={"budget": 0}).reads_hidden
    for rule in ("cut", "subset", "product"):
        lossy = DecodeOptions(method="sets", tau=0.7, rule=rule)
        assert not lossy.promises_equality
        assert lossy.draft_free() == free
