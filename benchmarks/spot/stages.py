"""The report's stages: record, replay, order accuracy, score, live, equality. Each goes on behind
what an earlier run left: a result whose digest fits is read again, another one is made anew."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any

from actors.runner import Runner, open_runner
from benchmarks.spot.cells import Cell, cell_name, main_draftings, plan_cells, standard_rule
from benchmarks.spot.check import Checked
from benchmarks.spot.depth import DepthJob
from benchmarks.spot.equality import EqualityRows, measure_equality
from benchmarks.spot.jobs import keep, kept, run_jobs
from benchmarks.spot.live import LiveRows, measure_live
from benchmarks.spot.recording import (
    asked_of,
    load_traces,
    record_apart,
    record_cell,
    trace_facts,
    trace_folder,
)
from benchmarks.spot.replaying import Replayed, gather, replay_jobs
from benchmarks.spot.scoring import Correct, score_traces
from cluster.console import progress, say
from decoders.options import DecodeOptions
from decoders.prompts import PromptRow
from decoders.trace_store import TraceStore
from models.text import TextCodec
from tasks.recordings import Source


@dataclass
class Report:
    """A report under way: what is checked, where it goes, and the target once it is needed."""

    checked: Checked
    out: Path
    resources: ExitStack

    @cached_property
    def cells(self) -> list[Cell]:
        return plan_cells(self.checked.config)

    @cached_property
    def runner(self) -> Runner:
        """Opened when the first stage asks for it: a report that only writes again needs none."""
        config = self.checked.config
        return self.resources.enter_context(
            open_runner(config.target, config.drafter, set(self.checked.live_methods))
        )

    def release(self) -> None:
        """Close the target, so that its place is free for another; it opens again when asked."""
        self.resources.close()
        vars(self).pop("runner", None)

    @property
    def source(self) -> Source:
        """What traces are recorded from."""
        return Source(self.checked.config.target, self.runner.record)

    def ids(self, cell: Cell) -> list[str]:
        """Of the cell's problems, in order."""
        return [p.id for p in asked_of(self.checked.config, cell.task, cell.count)]

    def traces(self, cell: Cell) -> Path:
        config, digest = self.checked.config, self.checked.digests["target"]
        return trace_folder(self.out / "traces", config, digest, cell)

    def facts(self, cell: Cell, drafted: bool = True) -> dict[str, Any]:
        """What decides every result of a cell."""
        digests = self.checked.digests
        found = trace_facts(self.checked.config, digests["target"], cell)
        return found | ({"drafters": digests["drafters"]} if drafted else {})

    def main_cells(self) -> list[Cell]:
        """Those of the main table, and the one of the figures (T=0)."""
        config = self.checked.config
        rules = [standard_rule(config, t) for t in (0.0, *config.main.temperatures)]
        names = {cell_name(task, rule) for task in config.tasks for rule in rules}
        return [cell for cell in self.cells if cell.name in names]


@contextmanager
def stage(name: str) -> Iterator[Callable[[int, int], None]]:
    """A bar while a stage runs, and its seconds behind it."""
    started = perf_counter()
    with progress(name) as report:
        yield report
    say(f"{name}: {perf_counter() - started:.1f} s")


def record(report: Report) -> None:
    """Draft-free traces of every cell."""
    config = report.checked.config
    total, done = sum(cell.count for cell in report.cells), 0
    with stage("record") as show:
        if config.target.device == "cpu" and config.target.tp == 1 and config.processes > 1:
            cells = {report.traces(cell): cell for cell in report.cells}
            record_apart(config, cells, lambda n: show(n, total))
            return
        for cell in report.cells:
            folder = report.traces(cell)
            if not set(report.ids(cell)) <= TraceStore(folder).recorded_ids():
                record_cell(
                    report.source,
                    config,
                    cell,
                    folder,
                    lambda n, before=done: show(before + n, total),
                )
            done += cell.count
            show(done, total)


def replay(report: Report) -> dict[str, Replayed]:
    """Every setting of every cell, by the cell's name."""
    checked = report.checked
    looked = {cell.name for cell in report.main_cells()}
    jobs = {
        cell.name: replay_jobs(
            cell,
            report.ids(cell),
            report.traces(cell),
            report.out / "replay",
            report.facts(cell),
            checked.drafters,
            checked.config.figures.commits if cell.name in looked else 0,
        )
        for cell in report.cells
    }
    with stage("replay") as show:
        run_jobs([job for each in jobs.values() for job in each], checked.config.processes, show)
    return {
        name: gather([kept(job.path, job.facts) or {} for job in each])
        for name, each in jobs.items()
    }


def order_depths(report: Report) -> dict[str, dict[str, Any]]:
    """The order model's next-commit accuracy by task, at T=0; nothing without an order model."""
    checked, figures = report.checked, report.checked.config.figures
    if checked.drafters.order is None:
        return {}
    rule = cell_name("", standard_rule(checked.config))
    jobs = {}
    for cell in report.cells:
        if cell.name == cell.task + rule:
            ids = tuple(report.ids(cell))
            facts = report.facts(cell) | figures.model_dump() | {"ids": ids}
            jobs[cell.task] = DepthJob(
                report.out / "order" / f"{cell.name}.json",
                facts,
                report.traces(cell),
                ids,
                checked.drafters.order,
                checked.folder,
                figures.depths,
                figures.states,
            )
    with stage("order accuracy") as show:
        run_jobs(list(jobs.values()), checked.config.processes, show)
    return {task: kept(job.path, job.facts) or {} for task, job in jobs.items()}


def scores(report: Report) -> dict[str, Correct]:
    """Right and wrong recorded replies of every cell."""
    codec = TextCodec(report.checked.folder)
    found: dict[str, Correct] = {}
    with stage("score") as show:
        for index, cell in enumerate(report.cells):
            ids = report.ids(cell)
            path = report.out / "scores" / f"{cell.name}.json"
            facts = report.facts(cell, drafted=False) | {"ids": ids}
            correct = kept(path, facts)
            if correct is None:
                asked = asked_of(report.checked.config, cell.task, cell.count)
                traces = load_traces(report.traces(cell), ids)
                correct = keep(path, facts, score_traces(asked, traces, codec))
            found[cell.name] = correct
            show(index + 1, len(report.cells))
    return found


def measure(report: Report) -> dict[str, LiveRows]:
    """The main table's rows on the target, by the cell's name; nothing without live problems."""
    config = report.checked.config
    if not config.live.problems:
        return {}
    found: dict[str, LiveRows] = {}
    with stage("live") as show:
        rules = [standard_rule(config, t) for t in config.main.temperatures]
        pairs = [(task, rule) for task in config.tasks for rule in rules]
        for index, (task, rule) in enumerate(pairs):
            found[cell_name(task, rule)] = _measure_cell(
                report, task, rule, lambda n, of, i=index: show(i * of + n, len(pairs) * of)
            )
    return found


def _measure_cell(
    report: Report, task: str, rule: DecodeOptions, show: Callable[[int, int], None]
) -> LiveRows:
    config, draftings = report.checked.config, main_draftings(report.checked.config)
    path = report.out / "live" / f"{cell_name(task, rule)}.json"
    facts = report.facts(Cell(task, rule, config.live.problems, ()))
    facts |= {"live": config.live.model_dump(), "draftings": draftings}
    facts |= {"target_config": config.target.model_dump()}
    rows = kept(path, facts)
    if rows is None:
        asked = asked_of(config, task, config.live.problems)
        prompts = [PromptRow(id=p.id, prompt=p.prompt) for p in asked]
        repeats = config.live.repeats
        rows = measure_live(report.runner, prompts, rule, draftings, repeats, show)
        rows = keep(path, facts, rows)
    return rows


def equality(report: Report) -> dict[tuple[str, str], EqualityRows]:
    """One copy against many, by task and dtype; nothing without problems for it."""
    config, asked_for = report.checked.config, report.checked.config.equality
    count = min(asked_for.problems, config.main.problems)
    if not count:
        return {}
    rules = [standard_rule(config, cap=cap) for cap in asked_for.caps]
    found: dict[tuple[str, str], EqualityRows] = {}
    pairs = [(dtype, task) for dtype in asked_for.dtypes for task in config.tasks]
    opened: tuple[str, Runner] | None = None
    with stage("equality") as show, ExitStack() as resources:
        for index, (dtype, task) in enumerate(pairs):
            path = report.out / "equality" / f"{task}-{dtype}.json"
            facts = report.facts(Cell(task, rules[0], count, ()), drafted=False)
            target = config.target.model_copy(update={"dtype": dtype})
            facts |= {"equality": asked_for.model_dump(), "target_config": target.model_dump()}
            rows = kept(path, facts)
            if rows is None:
                if opened is None or opened[0] != dtype:
                    # One target at a time: two may not fit where one does.
                    resources.close()
                    report.release()
                    runner = open_runner(target, config.drafter, {"chain"})
                    opened = dtype, resources.enter_context(runner)
                made = measure_equality(
                    opened[1],
                    [PromptRow(id=p.id, prompt=p.prompt) for p in asked_of(config, task, count)],
                    rules,
                    asked_for.budgets,
                    lambda n, of, i=index: show(i * of + n, len(pairs) * of),
                )
                rows = keep(path, facts, {"rows": made})
            found[task, dtype] = rows["rows"]
    return found
