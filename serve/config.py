"""What an endpoint serves: a sweep's ``best.yaml``, or a file written by hand."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from cluster.configuration import RunConfig, load_config
from decoders.options import Method
from serve.operation import OperationConfig


class ServeConfig(RunConfig):
    """A target, its drafter, and the options that requests start from."""

    name: str | None = None
    """The model name that clients ask for; by default the name of the target's folder."""
    methods: tuple[Method, ...] = ()
    """Methods that requests may name beside ``decode.method``; their drafters are loaded at
    start. Those that draft without any (``standard``, ``threshold``, ``chain``, ``wtree``) always
    are."""
    max_batch: int = Field(default=8, ge=1)
    """Answers that share a forward."""
    max_waiting: int = Field(default=64, ge=0)
    """Answers that may wait for a place in the batch; beyond that requests are refused (503)."""
    serve: OperationConfig = OperationConfig()

    max_cache_tokens: int | None = Field(default=None, ge=1)
    """Tokens of prefix cache, for answers under way and for prompts that come again; by default
    what the memory has room for that is free once the target is loaded."""

    @property
    def model_name(self) -> str:
        return self.name or Path(self.target.path).name

    @property
    def all_methods(self) -> set[str]:
        """Methods whose drafters are loaded."""
        return {self.decode.method, *self.methods}

    @property
    def stated_certificate(self) -> str | None:
        """What the file says of its origin, unless its own options make answers approximate."""
        return self.certificate if self.decode.promises_equality else "approximate"

    @property
    def max_answers(self) -> int:
        """Answers in the batch and waiting, together."""
        return self.max_batch + self.max_waiting


def load_serve_config(path: Path | None, settings: Sequence[str] = ()) -> ServeConfig:
    """The configuration in a YAML file, ``key=value`` texts over it; ``ValueError`` names the
    field, its value and the valid choices."""
    return load_config(ServeConfig, path, settings)
