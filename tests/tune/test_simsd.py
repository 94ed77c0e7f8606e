"""simsd in a sweep: its settings are drawn for live trials, and certified as what they are."""

from pathlib import Path
from shutil import copyfile

import pytest
import torch

from actors.loading import open_engine
from decoders.options import DecodeOptions
from drafters.config import DrafterConfig
from models.checkpoint import read_spec, save_checkpoint
from models.config import TargetConfig
from tests.conftest import tiny_model
from tests.text_target import save_text_target
from tests.tune.conftest import InProcess
from tune.config import LiveConfig, SweepConfig, TasksConfig
from tune.live import live_row
from tune.space import first_settings, simsd_settings, spell
from tune.space_config import SpaceConfig

SPACE = SpaceConfig(
    methods=("chain", "simsd"),
    gamma=(0.03, 0.0, 2.0),
    order=("temporal", "positional"),
    rest=("redraft", "target-argmax"),
    temperature=(0.0, 1.0),
)


def test_every_setting_of_simsd_is_valid_and_named_once() -> None:
    settings = simsd_settings(SPACE, 1000, seed=0)
    options = [DecodeOptions.model_validate(setting) for setting in settings]
    assert len(set(map(spell, options))) == len(options)
    rules = 2 * 2  # caps, temperatures
    assert len(options) == rules * 2 * (2 * 2 + 1), "lengths times (mask's four, exact's one)"
    assert {o.gamma for o in options} == {0.0, 2.0}


def test_a_few_are_drawn_the_same_again_and_none_without_simsd() -> None:
    few = simsd_settings(SPACE, 3, seed=1)
    assert few == simsd_settings(SPACE, 3, seed=1)
    assert len(few) == 3
    assert simsd_settings(SpaceConfig(), 3, seed=1) == []


def test_replay_searches_the_other_methods_only() -> None:
    assert SPACE.replayed == ("chain",)
    assert {setting["method"] for setting in first_settings(SPACE)} == {"chain"}


@pytest.mark.parametrize("methods", [("order",), ("simsd",)])
def test_a_space_without_a_gamma_for_its_method_is_refused(methods: tuple[str, ...]) -> None:
    other = {"order": 8.0, "simsd": 0.03}[methods[0]]
    with pytest.raises(ValueError, match=f"holds nothing for {methods[0]}"):
        SpaceConfig(methods=methods, gamma=(other,))


def test_live_rows_say_approximate_under_the_mask_and_exact_otherwise(tmp_path: Path) -> None:
    folder = save_text_target(tmp_path / "tiny")
    small = tiny_model(read_spec(folder), torch.float32, seed=3)
    save_checkpoint(small, folder / "drafter", dtype="float32")
    copyfile(folder / "tokenizer.json", folder / "drafter" / "tokenizer.json")
    target = TargetConfig(path=str(folder), dtype="float64")
    drafter = DrafterConfig(dtype="float64")
    group = InProcess(open_engine(target, drafter, {"simsd"}))
    config = SweepConfig(
        target=target,
        drafter=drafter,
        decode={"max_new_tokens": 16},
        tasks=TasksConfig(names=("words",), recorded=1, live=1),
        space=SPACE,
        live=LiveConfig(repeats=1),
    )
    baseline = live_row("base", config.reference, config, group, None)
    for verify, certificate in (("mask", "approximate"), ("exact", "exact")):
        options = config.options(method="simsd", verify=verify, gamma=2.0)
        found = live_row(verify, options, config, group, baseline)
        assert found.certificate == certificate
        assert found.drafting_ends == "gamma"
