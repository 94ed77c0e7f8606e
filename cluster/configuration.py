"""Configurations: YAML, then ``--set a.b=value``, then short options, validated once at the end."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from cluster.config import ClusterConfig
from decoders.options import DecodeOptions
from drafters.config import DrafterConfig
from models.config import TargetConfig
from models.invalid import one_line

# YAML is imported where it is read, so that commands start fast.

RUNS = Path("runs")
"""Where results, traces and the tracking store lie, below the working directory."""

Model = TypeVar("Model", bound=BaseModel)


class RunConfig(BaseModel):
    """What one command decodes with. A sweep's ``best.yaml`` is one, and says where it is from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: TargetConfig = TargetConfig()
    drafter: DrafterConfig = DrafterConfig()
    decode: DecodeOptions = DecodeOptions()
    cluster: ClusterConfig = ClusterConfig()
    run_id: str | None = None
    certificate: str | None = None


class SharedConfig(BaseModel):
    """Settings that several methods share: each method takes those that it knows."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: TargetConfig = TargetConfig()
    drafter: DrafterConfig = DrafterConfig()
    decode: dict[str, Any] = {}


def load_config(
    model: type[Model],
    file: Path | None = None,
    settings: Sequence[str] = (),
    short: Mapping[str, Any] | None = None,
) -> Model:
    """A ``model`` from a YAML ``file``, ``key=value`` texts and dotted ``short`` keys; the later
    win. A registered drafter in it is fetched, and named by its folder from then on.

    Raises ``ValueError`` in one line naming field, value and valid choices.
    """
    values = read_mapping(file) if file else {}
    for text in settings:
        key, value = parse_setting(text)
        assign(values, key, value)
    for key, value in (short or {}).items():
        assign(values, key, value)
    config = validate(model, values)
    drafter = getattr(config, "drafter", None)
    if isinstance(drafter, DrafterConfig) and drafter.registered:
        # Imported here: whoever names a folder needs no MLflow.
        from cluster.registered import fetch_drafters

        return config.model_copy(update={"drafter": fetch_drafters(drafter)})
    return config


def validate(model: type[Model], values: Mapping[str, Any], prefix: str = "") -> Model:
    """``values`` as a ``model``; ``ValueError`` in one line."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise ValueError(one_line(error, model, prefix)) from error


def read_mapping(file: Path) -> dict[str, Any]:
    """The mapping that a YAML file holds; an empty file is an empty mapping."""
    import yaml

    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"config {file}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"config {file} is not YAML: {' '.join(str(error).split())}") from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ValueError(f"config {file} must hold a mapping of keys to values")
    return values


def parse_setting(text: str) -> tuple[str, Any]:
    """``a.b=value`` as a key and its value, read as YAML."""
    import yaml

    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ValueError(f"--set {text!r} must have the form key=value, as in decode.budget=8")
    try:
        return key.strip(), yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ValueError(f"--set {key}: {value!r} is not a YAML value") from error


def assign(values: dict[str, Any], key: str, value: Any) -> None:
    """Put ``value`` at a dotted ``key`` of nested mappings, in place."""
    *parents, last = key.split(".")
    for name in parents:
        inner = values.setdefault(name, {})
        if inner is None:  # a section whose keys are all commented out
            inner = values[name] = {}
        if not isinstance(inner, dict):
            raise ValueError(f"{key}: {name} holds {inner!r}, not a mapping of keys to values")
        values = inner
    values[last] = value
