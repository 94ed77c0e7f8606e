"""What the report measures, on what, with which effort (``maskahead report spot --config``)."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from decoders.cost_curve import CostCurve
from decoders.options import LARGEST_BUDGET, LOSSLESS, DecodeOptions, Temperature
from decoders.stale import TOP_CANDIDATES
from drafters.config import DrafterConfig
from models.config import Dtype, TargetConfig
from tasks.bundled import find_task

Budget = Annotated[int, Field(ge=1, le=LARGEST_BUDGET)]
Floor = Annotated[float, Field(ge=0, lt=1)]
Cap = Annotated[float, Field(ge=0, le=1)]
Candidates = Annotated[int, Field(ge=1, le=TOP_CANDIDATES)]


def _check_distinct(name: str, values: tuple[object, ...]) -> None:
    if not values or len(set(values)) < len(values):
        raise ValueError(f"{name} {list(values)} must list each value once")


def _check_methods(name: str, methods: tuple[str, ...], valid: tuple[str, ...]) -> None:
    _check_distinct(name, methods)
    for method in methods:
        if method not in valid:
            raise ValueError(f"{name} {method!r}: choose from {', '.join(valid)}")


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class MainConfig(_Frozen):
    """Standard decoding without a cap: the main table, and every figure at T=0."""

    problems: int = Field(default=100, ge=1)
    """Held-out problems of each task."""
    temperatures: tuple[Temperature, ...] = (0.0, 1.0)
    budgets: tuple[Budget, ...] = (4, 8, 20)
    methods: tuple[str, ...] = ("chain", "wtree", "graph", "order", "oracle-position")
    """Rows of the main table; ``order`` has a second one, with the mass floor ``gamma``."""
    gamma: Floor = 0.03
    """Mass floor of SPOT-gamma in the main table."""
    gammas: tuple[Floor, ...] = (0.0, 0.01, 0.03, 0.1, 0.3)
    """Mass floors that are swept at T=0."""

    @model_validator(mode="after")
    def _check(self) -> "MainConfig":
        _check_methods("main.methods", self.methods, LOSSLESS)
        for name in ("temperatures", "budgets", "gammas"):
            _check_distinct(f"main.{name}", getattr(self, name))
        return self


class FiguresConfig(_Frozen):
    """How far the figures look ahead."""

    commits: int = Field(default=20, ge=1)
    """Longest look ahead K of the coverage, in commits."""
    candidates: tuple[Candidates, ...] = (1, 2, 4, 8)
    """Stale candidates t of the coverage."""
    depths: int = Field(default=8, ge=1)
    """Deepest draft whose accuracy and acceptance are shown."""
    states: int = Field(default=2000, ge=1)
    """Most stale states at which the order model's accuracy is measured, at every depth."""

    @model_validator(mode="after")
    def _check(self) -> "FiguresConfig":
        _check_distinct("figures.candidates", self.candidates)
        return self


class SweepsConfig(_Frozen):
    """Other temperatures and other commit rules, on the first of the main table's problems."""

    problems: int = Field(default=30, ge=1)
    """Held-out problems of each task."""
    methods: tuple[str, ...] = (
        "chain",
        "wtree",
        "graph",
        "order",
        "oracle-position",
        "oracle-joint",
    )
    budgets: tuple[Budget, ...] = (4, 20)
    temperatures: tuple[Temperature, ...] = (0.0, 0.7, 1.0, 1.5, 2.0)
    """Each with coupled and with independent verification."""
    caps: tuple[Cap, ...] = (1.0, 0.99, 0.95, 0.9, 0.8, 0.7, 0.5, 0.0)
    """Caps of the commit order; below 1 also tau of threshold decoding."""

    @model_validator(mode="after")
    def _check(self) -> "SweepsConfig":
        _check_methods("sweeps.methods", self.methods, LOSSLESS)
        for name in ("budgets", "temperatures", "caps"):
            _check_distinct(f"sweeps.{name}", getattr(self, name))
        return self


class LiveConfig(_Frozen):
    """The main table's rows on the target itself, interleaved with draft-free decoding."""

    problems: int = Field(default=2, ge=0)
    """Of the main table's first, for each task and temperature; 0 leaves the live stage out."""
    repeats: int = Field(default=1, ge=1)
    """Passes over them."""


class EqualityConfig(_Frozen):
    """One block copy a forward against many, in dtypes where rounding depends on the shape."""

    problems: int = Field(default=8, ge=0)
    """At most so many of the main table's first, for each task; 0 leaves this stage out."""
    dtypes: tuple[Dtype, ...] = ("bfloat16",)
    caps: tuple[Cap, ...] = (1.0, 0.9)
    budgets: tuple[Budget, ...] = (8, 20)
    """Drafts of a chain."""

    @model_validator(mode="after")
    def _check(self) -> "EqualityConfig":
        for name in ("dtypes", "caps", "budgets"):
            _check_distinct(f"equality.{name}", getattr(self, name))
        return self


class WhatIfConfig(_Frozen):
    """Prices for the replayed rounds: an assumption about some machine, never a measurement."""

    curve: CostCurve = CostCurve(
        knots=(1, LARGEST_BUDGET + 1), prefixes=(0,), seconds=((1.0, 1 + 0.02 * LARGEST_BUDGET),)
    )
    """Cost of a forward by its block copies; only ratios of it count."""
    drafter: float = Field(default=0.0, ge=0)
    """What the order model takes in a round, on the curve's scale."""
    words: str = (
        "assumed, not measured: a forward over n block copies costs 1 + 0.02 (n - 1) of a forward "
        "over one, whatever the prefix; drafting and prefill cost nothing"
    )
    """The assumption as the report states it."""

    @model_validator(mode="after")
    def _check(self) -> "WhatIfConfig":
        priced = self.model_fields_set & {"curve", "drafter"}
        if priced and "words" not in self.model_fields_set:
            raise ValueError(
                f"what_if.words: missing; say in words what what_if.{sorted(priced)[0]} assumes"
            )
        return self


class SpotConfig(_Frozen):
    """The whole report."""

    target: TargetConfig = TargetConfig()
    drafter: DrafterConfig = DrafterConfig()
    tasks: tuple[str, ...] = ("words", "code")
    problem_seed: int = 7
    """Of the held-out problems."""
    max_new_tokens: int = Field(default=DecodeOptions().max_new_tokens, ge=1)
    """Most tokens of an answer."""
    processes: int = Field(default=2, ge=1)
    """Processes that replay; 1 replays in the command's own."""
    main: MainConfig = MainConfig()
    figures: FiguresConfig = FiguresConfig()
    sweeps: SweepsConfig = SweepsConfig()
    live: LiveConfig = LiveConfig()
    equality: EqualityConfig = EqualityConfig()
    what_if: WhatIfConfig = WhatIfConfig()

    @model_validator(mode="after")
    def _check(self) -> "SpotConfig":
        _check_distinct("tasks", self.tasks)
        for task in self.tasks:
            find_task(task)
        for name, count in (
            ("sweeps.problems", self.sweeps.problems),
            ("live.problems", self.live.problems),
        ):
            if count > self.main.problems:
                raise ValueError(
                    f"{name} {count}: at most main.problems ({self.main.problems}), whose first "
                    "ones they are"
                )
        return self
