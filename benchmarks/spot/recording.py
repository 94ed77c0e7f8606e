"""The report's draft-free traces: one folder a cell, named after everything that decides them."""

from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.spot.cells import Cell
from benchmarks.spot.config import SpotConfig
from benchmarks.spot.jobs import short_digest
from decoders.trace import Trace
from decoders.trace_store import TraceStore
from tasks.bundled import problems
from tasks.problem import Problem
from tasks.recordings import Source, record_problems


def asked_of(config: SpotConfig, task: str, count: int) -> list[Problem]:
    """The first held-out problems of a task; fewer are a prefix of more."""
    return problems(task, "heldout", count, config.problem_seed)


def trace_facts(config: SpotConfig, target_digest: str, cell: Cell) -> dict[str, object]:
    """What decides a cell's traces, apart from how many there are."""
    return {
        "target": [config.target.path, target_digest, config.target.dtype],
        "task": [cell.task, config.problem_seed],
        "rule": cell.rule.rule(),
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


def load_traces(folder: Path, ids: Sequence[str]) -> list[Trace]:
    """The traces of ``ids``, in their order."""
    wanted, found = set(ids), {}
    for trace in TraceStore(folder).load():
        if trace.request.id in wanted:
            found[trace.request.id] = trace
        if len(found) == len(wanted):
            break
    return [found[id] for id in ids]
