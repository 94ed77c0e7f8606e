"""``maskahead report simsd``: all stages, then the tables and the page."""

from pathlib import Path
from typing import Any

import yaml

from actors.loading import check_target
from benchmarks.machine import git_commit, machine, versions
from benchmarks.simsd.config import SimsdConfig
from benchmarks.simsd.placement import measure_places, placement_table
from benchmarks.simsd.stages import Report, decode_settings, measure_fidelity
from benchmarks.simsd.tables import decoded_tables, fidelity_tables
from benchmarks.spot.found import Table
from benchmarks.spot.writing import REPORT, comma_separated, rows_of
from cluster.console import plain, say
from decoders.simsd.opening import check_pair, find_small_model
from models.checkpoint import find_checkpoint, read_spec, target_spec
from tasks.whole import write_whole


def check(config: SimsdConfig) -> None:
    """Raise ``ValueError`` for a pair that cannot be measured, before anything is decoded."""
    check_target(config.target)
    if config.target.tp != 1 or config.target.forwards not in ("auto", "plain"):
        raise ValueError(
            f"target.tp {config.target.tp}, target.forwards {config.target.forwards}: the report "
            "measures in one process and plainly; its placement stage has ranks and graphs of its "
            "own (placement.tensor_parallel, placement.forwards)"
        )
    folder = find_checkpoint(config.target.path)
    check_pair(find_small_model(config.drafter, folder), folder, target_spec(config.target))
    for pair in config.pairs:
        target = find_checkpoint(pair.target)
        check_pair(find_checkpoint(pair.drafter or pair.target), target, read_spec(target))


def run_simsd(config: SimsdConfig, out: Path, command: str) -> list[Table]:
    """The whole report in folder ``out``; returns its tables."""
    plain_target = config.target.model_copy(update={"forwards": "plain"})
    config = config.model_copy(update={"target": plain_target})
    report = Report(config, out)
    tables = decoded_tables(report.settings, decode_settings(report), config.tasks)
    tables += fidelity_tables(measure_fidelity(report))
    tables.append(placement_table(measure_places(report)))
    for table in tables:
        write_whole(out / f"{table.name}.csv", comma_separated(table))
    facts = {
        "target": {"path": config.target.path, "dtype": config.target.dtype},
        "digests": report.digests("main"),
        "problems": {"split": "heldout", "seed": config.problem_seed},
        "commit": git_commit(),
        "machine": machine(),
        "versions": versions(),
    }
    write_whole(out / REPORT, page(tables, config, facts, command))
    say(f"report: {out / REPORT}")
    return tables


def page(tables: list[Table], config: SimsdConfig, facts: dict[str, Any], command: str) -> str:
    """All tables as Markdown, with what was measured, where, and by which code."""
    lines = ["# SimSD on this pair", "", f"`{command}`", ""]
    lines += [f"- {name}: {plain(value)}" for name, value in facts.items()]
    lines += ["", "Verification under the temporal mask is approximate wherever it stands.", ""]
    for table in tables:
        lines += [f"## {table.title}", "", table.note, "", *rows_of(table), ""]
    dumped = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)
    return "\n".join([*lines, "## Configuration", "", "```yaml", dumped + "```", ""])
