"""``maskahead report spot``: all stages, then the tables, the page and one MLflow run."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.machine import git_commit, machine, versions
from benchmarks.spot.check import Checked
from benchmarks.spot.curves import (
    acceptance_table,
    coverage_table,
    order_accuracy_table,
    reliability_table,
)
from benchmarks.spot.equality import equality_table
from benchmarks.spot.found import Found, Table
from benchmarks.spot.jobs import short_digest
from benchmarks.spot.logbook import log_report
from benchmarks.spot.rules import accuracy_table, capped_table
from benchmarks.spot.speed import live_table
from benchmarks.spot.stages import (
    Report,
    equality,
    measure,
    order_depths,
    record,
    replay,
    scores,
    stage,
)
from benchmarks.spot.tables import gamma_table, main_table, oracle_table, temperature_table
from benchmarks.spot.writing import REPORT, write_report
from cluster.console import say
from cluster.tracking import DataSource, Tracking

TABLES = (
    main_table,
    live_table,
    oracle_table,
    coverage_table,
    order_accuracy_table,
    gamma_table,
    temperature_table,
    acceptance_table,
    reliability_table,
    capped_table,
    equality_table,
    accuracy_table,
)


def run_spot(checked: Checked, out: Path, command: str, tracking: Tracking) -> list[Table]:
    """The whole report in folder ``out``, and one MLflow run of it; returns its tables."""
    with ExitStack() as resources:
        report = Report(checked, out, resources)
        record(report)
        replayed, depths = replay(report), order_depths(report)
        correct = scores(report)
        live, equal = measure(report), equality(report)
        found = Found(checked.config, replayed, correct, depths, live, equal)
    tables = [make(found) for make in TABLES]
    with stage("write"):
        facts = describe(checked)
        files = write_report(tables, checked.config, facts, command, out)
    with stage("log"):
        log(report, tables, files, facts | {"command": command}, tracking)
    say(f"report: {out / REPORT}")
    return tables


def describe(checked: Checked) -> dict[str, Any]:
    """What a reader must know to judge or repeat the numbers."""
    config, drafters = checked.config, checked.drafters
    return {
        "target": {"path": config.target.path, "digest": checked.digests["target"]},
        "runs as": config.target.model_dump(exclude={"path", "block_size"}),
        "block_size": checked.spec.block_size,
        "parameters": checked.spec.num_parameters,
        "order model": str(drafters.order),
        "draft graphs": str(drafters.graph),
        "drafter digests": checked.digests["drafters"],
        "problems": {"split": "heldout", "seed": config.problem_seed, "digest": checked.problems},
        "commit": git_commit(),
        "machine": machine(),
        "versions": versions(),
    }


def log(
    report: Report,
    tables: Sequence[Table],
    files: Sequence[Path],
    facts: Mapping[str, Any],
    tracking: Tracking,
) -> None:
    """One MLflow run for this folder, configuration, target and drafters."""
    checked = report.checked
    config = checked.config.model_dump(mode="json")
    decides = {"out": str(report.out.resolve()), "config": config, "digests": checked.digests}
    data = DataSource("heldout", checked.problems, f"seed {checked.config.problem_seed}")
    log_report(tracking, short_digest(decides), tables, files, checked.config, facts, data)
