"""What can be served, and how it is told that something cannot."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from serve.app import check_config
from serve.config import ServeConfig, load_serve_config


def test_a_best_yaml_is_a_serve_configuration(tmp_path: Path) -> None:
    values = {
        "target": {"path": "somewhere/sdar-x", "tp": 2},
        "drafter": {"placement": "actor"},
        "decode": {"method": "chain", "budget": 3},
        "run_id": "abc",
        "certificate": "exact",
    }
    file = tmp_path / "best.yaml"
    file.write_text(yaml.safe_dump(values))
    config = load_serve_config(file)
    assert config.model_dump(exclude_unset=True) == values
    assert config.model_name == "sdar-x"
    assert config.max_answers == config.max_batch + config.max_waiting


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("decode: {method: magic}", "decode.method.*magic.*chain"),
        ("decode: {budget: 3}", "decode.budget is not an option of method standard"),
        ("targets: {}", "targets: unknown key; valid: .*target"),
        ("max_batch: 0", "max_batch: 0"),
        ("- a list", "mapping"),
        ("a: [", "not YAML"),
    ],
)
def test_a_bad_file_is_refused_with_field_value_and_choices(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        load_serve_config(file)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"absent\.yaml"):
        load_serve_config(tmp_path / "absent.yaml")


@pytest.mark.parametrize(
    ("target", "message"), [({"tp": 3}, "target.tp 3"), ({"path": "nowhere"}, "neither a folder")]
)
def test_a_target_that_cannot_be_opened_is_refused(
    text_folder: Path, target: dict[str, Any], message: str
) -> None:
    config = ServeConfig.model_validate({"target": {"path": str(text_folder)} | target})
    with pytest.raises(ValueError, match=message):
        check_config(config)


def test_a_target_that_does_not_fit_is_refused_before_anything_starts(
    text_folder: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(text_folder, tmp_path / "large"))
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(values | {"num_hidden_layers": 10**9}))
    config = ServeConfig.model_validate({"target": {"path": str(folder)}})
    with pytest.raises(ValueError, match=r"large' does not fit on cpu "):
        check_config(config)


def test_methods_beside_the_served_one_are_checked_at_start(text_folder: Path) -> None:
    values = {"target": {"path": str(text_folder)}, "decode": {"method": "chain"}}
    with pytest.raises(ValueError, match=r"methods oracle-joint: oracles .* valid here: standard"):
        check_config(ServeConfig.model_validate(values | {"methods": ["oracle-joint"]}))
    with pytest.raises(ValueError, match="drafter sdar-nano"):
        check_config(ServeConfig.model_validate(values | {"methods": ["simsd"]}))
    config = ServeConfig.model_validate(values | {"methods": ["order", "threshold"]})
    check_config(config)
    assert config.all_methods == {"chain", "order", "threshold"}


def test_a_target_without_a_tokenizer_is_refused(tiny_folder: Path) -> None:
    config = ServeConfig.model_validate({"target": {"path": str(tiny_folder)}})
    with pytest.raises(ValueError, match="tokenizer"):
        check_config(config)
