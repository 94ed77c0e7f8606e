"""``maskahead report ladder``: what each part of SPOT-Sets adds over threshold decoding.

Rungs are settings, each on top of those before it; all of them decode the same held-out problems on
the target, interleaved and paired. A further rung (of whatever option the loop has) is one more
entry of ``rungs`` in the configuration.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from actors.runner import Runner, open_runner
from benchmarks.certificate import certify
from benchmarks.figures import Chart, Panels, save_png
from benchmarks.machine import git_commit, machine, versions
from benchmarks.paired import Measured, measure, summarize
from benchmarks.spot.found import Table
from benchmarks.spot.jobs import keep, kept
from benchmarks.spot.writing import comma_separated, rows_of
from cluster.console import plain, progress
from decoders.options import DecodeOptions
from decoders.prompts import PromptRow
from decoders.proposers.registry import find_drafter
from decoders.trace import Trace
from drafters.config import DrafterConfig
from models.checkpoint import find_checkpoint
from models.config import TargetConfig
from models.digests import digest
from models.invalid import one_line
from tasks.bundled import find_task, problems, score
from tasks.intervals import paired_interval, wilson_interval
from tasks.problem import Problem
from tasks.whole import write_whole

MEAN = "mean"
NOTE = (
    "NFE: forwards of the target without prefill, over n problems. nfe_cut: share of threshold "
    "decoding's NFE that is saved. speed: tokens/s over threshold decoding's on the same batch in "
    "the same pass, median and quartiles. equal: outputs equal to threshold decoding's. accuracy "
    "with Wilson's, difference (to threshold decoding, same problems) with the paired 95 % "
    "interval. An approximate rung's output depends on its drafts; the last exact one stands above "
    "it. Task mean: over the tasks."
)


class Rung(BaseModel):
    """Decoding options that this rung sets on top of the rungs before it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    set: dict[str, Any]


class LadderConfig(BaseModel):
    """The whole report; the first rung is the baseline."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    target: TargetConfig = TargetConfig()
    drafter: DrafterConfig = DrafterConfig()
    tasks: tuple[str, ...] = ("words", "code")
    problems: int = Field(default=50, ge=1)
    """Held-out problems of each task."""
    problem_seed: int = 7
    decode: dict[str, Any] = {"tau": 0.9}
    """What all rungs share; each takes what its method knows."""
    rungs: tuple[Rung, ...] = (
        Rung(name="threshold", set={"method": "threshold"}),
        Rung(name="+ sets and tree", set={"method": "sets", "budget": 8}),
        Rung(name="+ gamma", set={"gamma": 0.03}),
        Rung(name="+ boundary", set={"cross_block": True, "draft_refresh": 16}),
        Rung(name="+ product max-commit", set={"rule": "product"}),
    )
    repeats: int = Field(default=1, ge=1)
    """Passes over the problems."""

    @model_validator(mode="after")
    def _check(self) -> "LadderConfig":
        names = [rung.name for rung in self.rungs]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"rungs {names} must each be there once, the baseline first")
        for task in self.tasks:
            find_task(task)
        options = self.options()
        if options[names[0]].drafts or not options[names[0]].over_threshold:
            raise ValueError(f"rungs: the first one, {names[0]!r}, must be method threshold")
        return self

    def options(self) -> dict[str, DecodeOptions]:
        """Decoding options by rung."""
        found, values = {}, dict(self.decode)
        for rung in self.rungs:
            values |= rung.set
            try:
                found[rung.name] = DecodeOptions.lenient(**values)
                # What the rung itself says must be an option of its method.
                DecodeOptions.model_validate({"method": found[rung.name].method} | rung.set)
            except ValidationError as error:
                told = one_line(error, DecodeOptions, "decode.")
                raise ValueError(f"rungs.{rung.name}: {told}") from error
        return found


def run_ladder(config: LadderConfig, out: Path, command: str) -> Table:
    """Measure every task (or read what an earlier run of the same configuration measured) and
    write ``ladder.csv``, ``ladder.png`` and ``report.md``."""
    folder = find_checkpoint(config.target.path)
    facts = describe(config, folder)
    measured = {task: kept(out / f"{task}.json", facts) for task in config.tasks}
    missing = [task for task, found in measured.items() if found is None]
    if missing:
        methods = {options.method for options in config.options().values()}
        with open_runner(config.target, config.drafter, methods) as runner:
            for task in missing:
                with progress(f"ladder {task}") as report:
                    found = measure_task(runner, config, task, report)
                measured[task] = keep(out / f"{task}.json", facts, found)
    table = ladder_table(config, {task: found or {} for task, found in measured.items()})
    here = {"commit": git_commit(), "machine": machine(), "versions": versions()}
    write(table, config, facts | here, command, out)
    return table


def describe(config: LadderConfig, folder: Path) -> dict[str, Any]:
    """What decides the numbers."""
    drafter = find_drafter("sets", folder, config.drafter)
    return {
        "config": config.model_dump(mode="json"),
        "target": digest(folder),
        "drafter": None if drafter is None else digest(drafter),
    }


def measure_task(
    runner: Runner, config: LadderConfig, task: str, report: Callable[[int, int], None]
) -> dict[str, Any]:
    """By rung: the facts of ``maskahead bench``, and which replies are right."""
    asked = problems(task, "heldout", config.problems, config.problem_seed)
    rows = [PromptRow(id=problem.id, prompt=problem.prompt) for problem in asked]
    options = config.options()
    measured = measure(runner, rows, options, config.repeats, report)
    base = measured[config.rungs[0].name]
    return {
        name: facts_of(runner, rows, asked, options[name], own, base)
        for name, own in measured.items()
    }


def facts_of(
    runner: Runner,
    rows: Sequence[PromptRow],
    asked: Sequence[Problem],
    options: DecodeOptions,
    own: Measured,
    base: Measured,
) -> dict[str, Any]:
    """One rung's numbers."""

    def trace_of(index: int) -> Trace:
        return next(runner.record([rows[index]], options.draft_free()))

    certificate = certify(options, own.rows, base.rows, trace_of)
    right = score(asked, [row["text"] for row in own.rows])
    return summarize(own, base, certificate) | {"right": right}


def ladder_table(config: LadderConfig, measured: Mapping[str, Mapping[str, Any]]) -> Table:
    """A row for every rung of every task, and the tasks' mean where there are several."""
    rows = [
        row_of(task, rung.name, found[rung.name], found[config.rungs[0].name])
        for task, found in measured.items()
        for rung in config.rungs
    ]
    if len(measured) > 1:
        rows += [mean_row(rung.name, rows) for rung in config.rungs]
    return Table("ladder", "SPOT-Sets, part by part", ("task", "rung"), rows, NOTE)


def row_of(task: str, rung: str, own: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """Columns of one rung on one task."""
    right, n = sum(own["right"]), own["n"]
    low, high = wilson_interval(right, n)
    less, more = paired_interval(own["right"], base["right"])
    return {
        "task": task,
        "rung": rung,
        "n": n,
        "nfe": own["nfe"],
        "nfe_cut": 1 - own["nfe"] / base["nfe"],
        "tokens_per_forward": own["tokens_per_forward"],
        "accepted_per_round": own["accepted_per_round"],
        "tokens_per_second": own["tokens_per_second"],
        "speed": own["ratio"]["median"],
        "speed_q25": own["ratio"]["q25"],
        "speed_q75": own["ratio"]["q75"],
        "certificate": own["certificate"],
        "equal": own["equal"],
        "accuracy": right / n,
        "accuracy_low": low,
        "accuracy_high": high,
        "difference": (right - sum(base["right"])) / n,
        "difference_low": less,
        "difference_high": more,
    }


def mean_row(rung: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The mean over the tasks of what has one; problems, forwards and equal outputs add up."""
    own = [row for row in rows if row["rung"] == rung]
    certificates = {row["certificate"] for row in own}
    found: dict[str, Any] = {"task": MEAN, "rung": rung}
    found |= {name: sum(row[name] for row in own) for name in ("n", "nfe", "equal")}
    for name in ("nfe_cut", "tokens_per_forward", "tokens_per_second", "speed", "accuracy"):
        found[name] = float(np.mean([row[name] for row in own]))
    worst = [kind for kind in ("differs", "approximate", "exact") if kind in certificates]
    return found | {"certificate": worst[0]}


def write(
    table: Table, config: LadderConfig, facts: Mapping[str, Any], command: str, out: Path
) -> None:
    """Table, plot and page."""
    write_whole(out / "ladder.csv", comma_separated(table))
    plots = {}
    for column in ("nfe_cut", "speed"):
        plots[column] = out / f"ladder-{column}.png"
        chart = Chart(f"{table.title}: {column} by rung", "rung", panels(table, column))
        save_png(chart, plots[column])
    lines = [f"# {table.title}", "", f"`{command}`", "", table.note, ""]
    lines += [*(f"![{path.stem}]({path.name})" for path in plots.values()), "", *rows_of(table), ""]
    told = {name: value for name, value in facts.items() if name != "config"}
    lines += [f"- {name}: {plain(value)}" for name, value in told.items()]
    for number, (name, options) in enumerate(config.options().items()):
        given = options.model_dump(exclude_unset=True)
        lines.append(f"- rung {number}, {name}: {plain(given)}")
    write_whole(out / "report.md", "\n".join([*lines, ""]))


def panels(table: Table, column: str) -> Panels:
    """A panel for every task: the column over the number of the rung."""
    found: Panels = {}
    for task in dict.fromkeys(row["task"] for row in table.rows):
        values = [float(row[column]) for row in table.rows if row["task"] == task]
        found[task] = {column: (list(map(float, range(len(values)))), values)}
    return found
