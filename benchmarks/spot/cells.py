"""What has to be recorded and replayed: cells of one task and one draft-free rule each."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.spot.config import SpotConfig
from decoders.options import ORACLES, DecodeOptions


class Drafting(NamedTuple):
    """How drafts are made over a rule; the order model's mass floor is the only knob swept."""

    method: str
    budget: int
    gamma: float = 0.0

    @property
    def row(self) -> str:
        """The method as the tables name it."""
        return f"{self.method}-gamma" if self.gamma > 0 else self.method

    @property
    def label(self) -> str:
        """Row and budget in one."""
        return f"{self.row} D{self.budget}"

    def over(self, rule: DecodeOptions) -> DecodeOptions:
        """The options of drafting so over a draft-free rule."""
        return DecodeOptions.lenient(**(rule.model_dump() | self._asdict()))


@dataclass(frozen=True)
class Cell:
    """``count`` problems of a task by a draft-free rule, and what is replayed over it."""

    task: str
    rule: DecodeOptions
    count: int
    draftings: tuple[Drafting, ...]

    @property
    def name(self) -> str:
        return cell_name(self.task, self.rule)


def cell_name(task: str, rule: DecodeOptions) -> str:
    """Task and rule as a name of files."""
    if rule.method == "threshold":
        return f"{task}-tau{rule.tau:.12g}"
    verification = "" if rule.coupled else "-independent"
    return f"{task}-T{rule.temperature:.12g}-cap{rule.cap:.12g}{verification}"


def standard_rule(
    config: SpotConfig, temperature: float = 0.0, cap: float = 1.0, coupled: bool = True
) -> DecodeOptions:
    """One commit a forward."""
    return DecodeOptions(
        temperature=temperature, cap=cap, coupled=coupled, max_new_tokens=config.max_new_tokens
    )


def threshold_rule(config: SpotConfig, tau: float) -> DecodeOptions:
    """Every position above ``tau`` at once."""
    return DecodeOptions(method="threshold", tau=tau, max_new_tokens=config.max_new_tokens)


def verifications(temperature: float) -> tuple[bool, ...]:
    """Coupled, and independent where tokens are drawn at all."""
    return (True, False) if temperature > 0 else (True,)


def main_draftings(config: SpotConfig) -> list[Drafting]:
    """Rows of the main table, budget by budget; SPOT-gamma follows the order model."""
    main, found = config.main, []
    for budget in main.budgets:
        for method in main.methods:
            found.append(Drafting(method, budget))
            if method == "order" and main.gamma > 0:
                found.append(Drafting(method, budget, main.gamma))
    return found


def oracle_draftings(config: SpotConfig) -> list[Drafting]:
    return [Drafting(method, budget) for budget in config.main.budgets for method in ORACLES]


def gamma_draftings(config: SpotConfig) -> list[Drafting]:
    """The order model at every floor; none where it has no part in the report."""
    if "order" not in config.main.methods:
        return []
    main = config.main
    return [Drafting("order", budget, gamma) for budget in main.budgets for gamma in main.gammas]


def sweep_draftings(config: SpotConfig) -> list[Drafting]:
    sweeps = config.sweeps
    return [Drafting(method, budget) for budget in sweeps.budgets for method in sweeps.methods]


def plan_cells(config: SpotConfig) -> list[Cell]:
    """Every cell once, the largest first: what several tables need is recorded for all of them."""
    main, sweeps = config.main, config.sweeps
    figures = [*oracle_draftings(config), *gamma_draftings(config)]
    swept = sweep_draftings(config)
    wanted: list[tuple[DecodeOptions, int, Iterable[Drafting]]] = [
        (standard_rule(config), main.problems, figures)
    ]
    for temperature in main.temperatures:
        rule = standard_rule(config, temperature)
        wanted.append((rule, main.problems, main_draftings(config)))
    for temperature in sweeps.temperatures:
        for coupled in verifications(temperature):
            rule = standard_rule(config, temperature, coupled=coupled)
            wanted.append((rule, sweeps.problems, swept))
    for cap in sweeps.caps:
        wanted.append((standard_rule(config, cap=cap), sweeps.problems, swept))
        if cap < 1:
            wanted.append((threshold_rule(config, cap), sweeps.problems, ()))
    cells = [_merge(task, wanted, rule) for task in config.tasks for rule in _rules(wanted)]
    return sorted(cells, key=lambda cell: -cell.count * (1 + len(cell.draftings)))


def _rules(wanted: Iterable[tuple[DecodeOptions, int, Iterable[Drafting]]]) -> list[DecodeOptions]:
    return list({cell_name("", rule): rule for rule, _, _ in wanted}.values())


def _merge(
    task: str, wanted: Iterable[tuple[DecodeOptions, int, Iterable[Drafting]]], rule: DecodeOptions
) -> Cell:
    same = [(n, d) for other, n, d in wanted if cell_name("", other) == cell_name("", rule)]
    draftings = dict.fromkeys(drafting for _, each in same for drafting in each)
    return Cell(task, rule, max(n for n, _ in same), tuple(draftings))
