"""The known families, by the ``model_type`` of their configurations."""

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from models.families import llada, llada2, qwen2, sdar
from models.families.fields import Config
from models.layout import Piece
from models.spec import TargetSpec


class Family(Protocol):
    """One file a family: how its configuration reads and what its tensors are called."""

    @property
    def MODEL_TYPES(self) -> tuple[str, ...]: ...
    def read_spec(self, config: Config, generation_config: Config, name: str) -> TargetSpec: ...
    def write_config(self, spec: TargetSpec, dtype: str) -> tuple[dict, dict]: ...
    def pieces(self, spec: TargetSpec, names: Collection[str] = (), /) -> Iterable[Piece]: ...


_MODULES: tuple[Family, ...] = (sdar, llada2, llada, qwen2)

FAMILIES: Mapping[str, Family] = {
    model_type: family for family in _MODULES for model_type in family.MODEL_TYPES
}


def family_of(config: Config, name: str) -> Family:
    """The family of a configuration; ``ValueError`` for an unknown one."""
    family = FAMILIES.get(str(config.get("model_type")))
    if family is None:
        raise ValueError(
            f"config.json of {name}: model_type {config.get('model_type')!r} is not known; "
            f"known are {', '.join(sorted(FAMILIES))}"
        )
    return family
