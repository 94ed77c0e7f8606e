"""The cells of the benchmark of ``budget: auto``: task, draft-free rule, what is compared there."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import typer

from decoders.options import PROPOSERS, DecodeOptions
from tasks.bundled import find_task

AUTO = "auto"
LEARNED = ("order", "sets")
DRAFTING = (*PROPOSERS, "sets")

Rule = dict[str, Any]
"""Decoding options of a draft-free method."""


@dataclass(frozen=True)
class Setting:
    """A method with its budget, and with the mass floor of a learned drafter's tree."""

    method: str
    budget: int | str
    gamma: float = 0.0

    @property
    def label(self) -> str:
        floor = f" gamma {self.gamma:g}" if self.gamma else ""
        return f"{self.method} {self.budget}{floor}"

    def over(self, rule: DecodeOptions) -> DecodeOptions:
        values = {"method": self.method, "budget": self.budget, "gamma": self.gamma}
        return DecodeOptions.lenient(**(rule.model_dump() | values))


def settings_of(methods: Iterable[str], budgets: Iterable[int], gamma: float) -> list[Setting]:
    """For each method ``auto``, then fixed budgets; those of learned drafters with a mass floor."""
    found = []
    for method in methods:
        found.append(Setting(method, AUTO))
        floor = gamma if method in LEARNED else 0.0
        found += [Setting(method, budget, floor) for budget in budgets]
    return found


def rules_of(
    methods: Sequence[str], caps: Iterable[float], taus: Iterable[float]
) -> list[tuple[Rule, list[str]]]:
    """Draft-free rules, each with the methods that draft over it.

    Raises ``typer.BadParameter`` for a method that does not draft.
    """
    for name in methods:
        if name not in DRAFTING:
            raise typer.BadParameter(f"{name!r}: choose from {', '.join(DRAFTING)}")
    over_standard = [method for method in methods if method != "sets"]
    found: list[tuple[Rule, list[str]]] = []
    if over_standard:
        found += [({"method": "standard", "cap": cap}, over_standard) for cap in caps]
    if "sets" in methods:
        found += [({"method": "threshold", "tau": tau}, ["sets"]) for tau in taus]
    return found


@dataclass(frozen=True)
class Cell:
    """One task under one draft-free rule, with the settings that are compared with it."""

    task: str
    rule: DecodeOptions
    settings: Sequence[Setting]

    @property
    def names(self) -> dict[str, Any]:
        """What its rows begin with."""
        knob = "cap" if self.rule.method == "standard" else "tau"
        told = f"{knob} {getattr(self.rule, knob):g}"
        batch, temperature = self.rule.batch_size, self.rule.temperature
        return {"task": self.task, "batch": batch, "T": temperature, "rule": told}


def cells_of(
    tasks: Iterable[str],
    batch_sizes: Sequence[int],
    temperatures: Sequence[float],
    rules: Sequence[tuple[Rule, list[str]]],
    budgets: Sequence[int],
    gamma: float,
) -> list[Cell]:
    """All cells. Raises ``ValueError`` for what one of them would refuse when its turn comes."""
    cells = [
        Cell(
            task,
            DecodeOptions.model_validate(rule | {"temperature": t, "batch_size": size}),
            settings_of(methods, budgets, gamma),
        )
        for task in dict.fromkeys(tasks)
        for size in batch_sizes
        for t in temperatures
        for rule, methods in rules
    ]
    for cell in cells:
        find_task(cell.task)
        for setting in cell.settings:
            setting.over(cell.rule)
    return cells
