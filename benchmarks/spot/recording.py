"""The report's draft-free traces: one folder a cell, named after everything that decides them."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from actors.loading import open_engine
from benchmarks.spot.cells import Cell
from benchmarks.spot.config import SpotConfig
from benchmarks.spot.jobs import short_digest
from decoders.engine import Engine
from decoders.options import DecodeOptions
from decoders.prompts import PromptRow
from decoders.trace import Trace
from decoders.trace_store import TraceStore
from drafters.config import DrafterConfig
from models.config import TargetConfig
from tasks.bundled import problems
from tasks.problem import Problem
from tasks.processes import run_apart
from tasks.recordings import Source, missing_parts, open_store, record_part, record_problems


def asked_of(config: SpotConfig, task: str, count: int) -> list[Problem]:
    """The first held-out problems of a task; fewer are a prefix of more."""
    return problems(task, "heldout", count, config.problem_seed)


def trace_facts(config: SpotConfig, target_digest: str, cell: Cell) -> dict[str, object]:
    """What decides a cell's traces, apart from how many there are."""
    return {
        "target": [config.target.path, target_digest, config.target.precision],
        "task": [cell.task, config.problem_seed],
        "rule": cell.rule.commit_rule(),
    }


def trace_folder(root: Path, config: SpotConfig, target_digest: str, cell: Cell) -> Path:
    return root / f"{cell.name}-{short_digest(trace_facts(config, target_digest, cell))}"


def num_recorded(folder: Path) -> int:
    return len(TraceStore(folder).recorded_ids())


def record_cell(
    source: Source, config: SpotConfig, cell: Cell, folder: Path, report: Callable[[int], None]
) -> None:
    """Record what the cell's folder lacks; ``report(done)`` counts its problems."""
    digest = short_digest({"task": cell.task, "seed": config.problem_seed})
    asked = asked_of(config, cell.task, cell.count)
    record_problems(source, folder, asked, cell.rule, digest, lambda done, _: report(done))


class Part(NamedTuple):
    """Some problems of a cell, to be recorded by a process that has a target of its own."""

    target: TargetConfig
    rule: DecodeOptions
    rows: tuple[PromptRow, ...]
    folder: Path
    """Of the cell's traces."""


def record_apart(
    config: SpotConfig,
    cells: Mapping[Path, Cell],
    report: Callable[[int], None],
) -> None:
    """Record what the folders of ``cells`` lack, in ``config.processes`` processes of one thread,
    each with a target of its own; ``report(done)`` counts all problems.

    On a CPU two targets on a thread each record faster than one on two threads. Only this process
    writes.
    """
    stores: dict[Path, TraceStore] = {}
    parts: list[Part] = []
    for folder, cell in cells.items():
        told = short_digest({"task": cell.task, "seed": config.problem_seed})
        stores[folder] = open_store(config.target, folder, cell.rule, told)
        asked = asked_of(config, cell.task, cell.count)
        rows = missing_parts(stores[folder], asked)
        parts += [Part(config.target, cell.rule, tuple(part), folder) for part in rows]
    done = sum(cell.count for cell in cells.values()) - sum(len(part.rows) for part in parts)
    report(done)
    for folder, traces in run_apart(record_rows, parts, config.processes):
        stores[folder].append(traces)
        done += len(traces)
        report(done)


def record_rows(part: Part) -> tuple[Path, list[Trace]]:
    """One part's traces, beside the folder that they belong to."""
    engine = open_target_once(part.target)
    return part.folder, record_part(engine.record, part.rows, part.rule)


@lru_cache(maxsize=1)
def open_target_once(target: TargetConfig) -> Engine:
    """The process's own target, without drafters."""
    return open_engine(target, DrafterConfig(), [])


def load_traces(folder: Path, ids: Sequence[str]) -> list[Trace]:
    """The traces of ``ids``, in their order."""
    wanted, found = set(ids), {}
    for trace in TraceStore(folder).load():
        if trace.request.id in wanted:
            found[trace.request.id] = trace
        if len(found) == len(wanted):
            break
    return [found[id] for id in ids]
