"""What the report writes to MLflow: one run, whatever was resumed in between."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.spot.config import SpotConfig
from benchmarks.spot.found import Table
from cluster.tracking import DataSource, Tracking
from tasks.files import flat

LONGEST_PARAM = 500


def log_report(
    tracking: Tracking,
    report_id: str,
    tables: Sequence[Table],
    files: Sequence[Path],
    config: SpotConfig,
    tags: Mapping[str, Any],
    data: DataSource,
) -> str:
    """Log tables as metrics and all files as artifacts; returns the run, which is the same one for
    the same ``report_id``."""
    run_id = tracking.parent(report_id, "report spot")
    params = flat(config.model_dump(mode="json"))
    told = {key: json.dumps(value)[:LONGEST_PARAM] for key, value in params.items()}
    tracking.log(run_id, told, {}, {key: str(value) for key, value in flat(tags).items()}, data)
    for table in tables:
        tracking.log(run_id, {}, metrics(table), {})
    tracking.log_files(run_id, files)
    tracking.finish(run_id, "FINISHED")
    return run_id


def metrics(table: Table) -> dict[str, float]:
    """Every number of a table: table, key columns and column make its name."""
    found: dict[str, float] = {}
    for row in table.rows:
        where = [f"{key} {row[key]}" for key in table.keys]
        for column, value in row.items():
            if column in table.keys or isinstance(value, (str, bool)) or value is None:
                continue
            if math.isfinite(value):
                found[metric_name([table.name, *where, column])] = float(value)
    return found


def metric_name(parts: Sequence[str]) -> str:
    """Parts joined by slashes, without characters that MLflow refuses."""
    return "/".join(re.sub(r"[^\w\-. ]", "_", part) for part in parts)
