"""``report.md`` and a CSV file for every table."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.spot.config import SpotConfig
from benchmarks.spot.found import Row, Table
from benchmarks.spot.plots import HTML, save_plots
from cluster.console import plain
from tasks.whole import write_whole

REPORT = "report.md"


def write_report(
    tables: Sequence[Table], config: SpotConfig, facts: Mapping[str, Any], command: str, out: Path
) -> list[Path]:
    """Tables, plots and the page that shows them; returns all files. ``facts`` say what was
    measured, where and by which code."""
    plots = save_plots({table.name: table for table in tables}, out)
    csvs = [out / f"{table.name}.csv" for table in tables]
    for table, path in zip(tables, csvs, strict=True):
        write_whole(path, comma_separated(table))
    page = markdown(tables, plots, config, facts, command)
    write_whole(out / REPORT, page)
    pngs = [path for each in plots.values() for path in each]
    return [out / REPORT, out / HTML, *csvs, *pngs]


def markdown(
    tables: Sequence[Table],
    plots: Mapping[str, Sequence[Path]],
    config: SpotConfig,
    facts: Mapping[str, Any],
    command: str,
) -> str:
    """The whole page."""
    lines = ["# SPOT on this target", "", f"`{command}`", ""]
    lines += [f"- {name}: {plain(value)}" for name, value in facts.items()]
    lines += ["", f"All figures for a browser: [{HTML}]({HTML})", ""]
    for table in tables:
        lines += [f"## {table.title}", "", table.note, ""]
        lines += [f"Made by `{command}`; [{table.name}.csv]({table.name}.csv)", ""]
        lines += [*(f"![{path.stem}]({path.name})" for path in plots.get(table.name, ())), ""]
        lines += [*rows_of(table), ""]
    dumped = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)
    return "\n".join([*lines, "## Configuration", "", "```yaml", dumped + "```", ""])


def rows_of(table: Table) -> list[str]:
    """A table in Markdown."""
    columns = columns_of(table.rows)
    if not columns:
        return ["No rows: left out by the configuration."]
    lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    for row in table.rows:
        lines.append("| " + " | ".join(plain(row.get(column)) for column in columns) + " |")
    return lines


def comma_separated(table: Table) -> str:
    """A table as CSV, all digits; a missing value is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns_of(table.rows), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table.rows)
    return text.getvalue()


def shown(table: Table) -> tuple[str, list[Row]]:
    """Title and the columns of the main table that a terminal has room for."""
    columns = (*table.keys, "n", "nfe_factor", "live_speed", "what_if", "certificate")
    rows = [{column.replace("_", " "): row[column] for column in columns} for row in table.rows]
    return table.title, rows


def columns_of(rows: Sequence[Row]) -> list[str]:
    """Every column that a row has, in the order of appearance."""
    return list(dict.fromkeys(column for row in rows for column in row))
