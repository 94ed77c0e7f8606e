"""What an endpoint serves: a sweep's ``best.yaml``, or a file written by hand."""

from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from decoders.options import DecodeOptions
from drafters.config import DrafterConfig
from models.config import TargetConfig


class ServeConfig(BaseModel):
    """A target, its drafter, and the options that requests start from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: TargetConfig = TargetConfig()
    drafter: DrafterConfig = DrafterConfig()
    decode: DecodeOptions = DecodeOptions()
    name: str | None = None
    """The model name that clients ask for; by default the name of the target's folder."""
    max_batch: int = Field(8, ge=1)
    """Answers that share a forward."""
    max_waiting: int = Field(64, ge=0)
    """Answers that may wait for a place in the batch; beyond that requests are refused (503)."""
    run_id: str | None = None
    """The sweep's run that found this configuration."""
    certificate: str | None = None

    @property
    def model_name(self) -> str:
        return self.name or Path(self.target.path).name

    @property
    def max_answers(self) -> int:
        """Answers in the batch and waiting, together."""
        return self.max_batch + self.max_waiting


def load_serve_config(path: Path) -> ServeConfig:
    """The configuration in a YAML file; ``ValueError`` names the file, the field and its value."""
    if not path.exists():
        raise ValueError(f"config {str(path)!r} does not exist")
    try:
        values = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not YAML: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold a mapping with {', '.join(ServeConfig.model_fields)}")
    try:
        return ServeConfig.model_validate(values)
    except ValidationError as error:
        raise ValueError(f"{path}: {describe(error)}") from error


def describe(error: ValidationError) -> str:
    """One line per problem: field, value, what is wrong."""
    return "; ".join(
        f"{'.'.join(map(str, problem['loc'])) or 'config'} {problem['input']!r}: {problem['msg']}"
        for problem in error.errors()
    )
