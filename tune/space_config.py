"""The search space of a sweep: which values of which knobs are tried."""

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from decoders.options import (
    GAMMA_OF,
    LARGEST_BUDGET,
    PROPOSERS,
    Acceptance,
    AcceptOrder,
    DecodeOptions,
    Rest,
    Temperature,
    Verify,
    takes,
)
from models.invalid import one_line


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Range(_Frozen):
    """Whole numbers from ``least`` to ``most``, both included."""

    least: int
    most: int

    @model_validator(mode="after")
    def _check(self) -> "Range":
        if not 0 <= self.least <= self.most <= LARGEST_BUDGET:
            raise ValueError(
                f"range {self.least}..{self.most} must have 0 <= least <= most <= {LARGEST_BUDGET}"
            )
        return self


SWEPT = (*PROPOSERS, "sets", "simsd")
CHOICES = (
    *("cap", "tau", "temperature", "gamma", "hedge", "width", "prune", "cross_block"),
    *("order", "rest", "verify"),
)
"""Knobs of a space that are a list of values."""


class SpaceConfig(_Frozen):
    """The values that are tried; a method takes the knobs that it has and no other."""

    methods: tuple[str, ...] = ("chain", "order")
    """``simsd`` may stand among them: it cannot be replayed, so its settings are only tried live
    (``live.simsd`` of them)."""
    budget: Range = Range(least=1, most=32)
    """Drafts of a forward; none at all (0) is the baseline, which always runs."""
    gamma: tuple[float, ...] = (0.0, 0.01, 0.03, 0.1, 4.0, 8.0, 16.0)
    """Mass floors of order (below 1) and draft lengths of simsd (whole numbers, 0 for the block):
    each method takes what means something to it."""
    hedge: tuple[float, ...] = (0.0, 0.3, 0.6, 0.8)
    width: tuple[int, ...] = (2, 3, 4)
    prune: tuple[float, ...] = (0.0, 0.3, 0.6)
    cross_block: tuple[bool, ...] = (False, True)
    order: tuple[AcceptOrder, ...] = ("temporal",)
    rest: tuple[Rest, ...] = ("redraft",)
    verify: tuple[Verify, ...] = ("mask", "exact")
    cap: tuple[float, ...] = (1.0, 0.9)
    tau: tuple[float, ...] = (0.9,)
    """Of threshold decoding, which ``sets`` drafts over."""
    rule: tuple[Acceptance, ...] = ("exact",)
    """Rules of acceptance of ``sets``. Lossy ones cannot be replayed: they are tried live, each
    beside the exact setting that was chosen."""
    temperature: tuple[Temperature, ...] = (0.0,)

    @model_validator(mode="after")
    def _check(self) -> "SpaceConfig":
        for method in self.methods:
            if method not in SWEPT:
                raise ValueError(
                    f"space.methods {method!r}: a sweep tries methods that draft; choose from "
                    f"{', '.join(SWEPT)}"
                )
        for name in ("methods", *CHOICES, "rule"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise ValueError(f"space.{name} {list(values)} must list each value once")
        for value in self.gamma:
            if not any(takes(method, "gamma", value) for method in GAMMA_OF):
                meanings = "; ".join(f"for {method} {told}" for method, told in GAMMA_OF.items())
                raise ValueError(f"space.gamma {value:g} means nothing to any method: {meanings}")
        for method in SWEPT:
            for name in CHOICES:
                _check_values(method, name, self.values(method, name))
        for method, meaning in GAMMA_OF.items():
            if method in self.methods and not self.values(method, "gamma"):
                raise ValueError(
                    f"space.gamma {list(self.gamma)} holds nothing for {method}: {meaning}"
                )
        return self

    @property
    def replayed(self) -> tuple[str, ...]:
        """The methods whose forwards replay counts."""
        return tuple(method for method in self.methods if method != "simsd")

    def values(self, method: str, name: str) -> list[Any]:
        """The values of a knob that mean something to a method."""
        return [value for value in getattr(self, name) if takes(method, name, value)]

    def rules(self, method: str) -> tuple[dict[str, float], ...]:
        """What decides the draft-free runs that a method's settings are compared with."""
        knob = "tau" if method == "sets" else "cap"
        values = getattr(self, knob)
        return tuple({knob: value, "temperature": t} for value in values for t in self.temperature)


def _check_values(method: str, name: str, values: list[Any]) -> None:
    """Raise ``ValueError`` for a value that the option itself refuses: a trial that drew it would
    end the whole sweep."""
    for value in values:
        try:
            DecodeOptions.model_validate({"method": method, name: value})
        except ValidationError as error:
            raise ValueError(one_line(error, prefix="space.")) from error
