"""What a sweep writes to MLflow: one parent, one child a trial, all from the driver."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cluster.tracking import ChildRun, DataSource, Outcome, Tracking
from tune.row import Status, TrialRow
from tune.space import flat_knobs, spell

METRICS = (
    "n",
    "nfe",
    "forwards",
    "nfe_factor",
    "nfe_factor_reference",
    "tokens_per_forward",
    "accepted_per_round",
    "drafts_per_round",
    "speed_reference",
    "tokens_per_second",
    "latency_p95",
    "passes",
    "accuracy",
    "num_different",
    "margin",
    "seconds",
)

OUTCOMES: Mapping[Status, Outcome] = {"done": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}
"""A trial that was stopped because it could not win stands out from those that failed."""
ENDED = tuple(OUTCOMES.values())


class Logbook:
    """The runs of one sweep; a trial is logged once, whatever was killed in between."""

    def __init__(self, tracking: Tracking, sweep_id: str, name: str, data: DataSource) -> None:
        self.tracking = tracking
        self.data = data
        self.parent = tracking.parent(sweep_id, name)
        self.children = tracking.children(self.parent)

    def describe(self, space: Mapping[str, Any], tags: Mapping[str, str]) -> None:
        """The parent's parameters (the search space) and tags."""
        params = {f"space.{name}": json.dumps(value) for name, value in space.items()}
        self.tracking.log(self.parent, params, {}, tags, self.data)

    def log(self, row: TrialRow) -> None:
        """The child run of a finished trial."""
        run_id, status = self.children.get(row.key, (None, ""))
        child = child_of(row)
        if status in ("FINISHED", child.outcome):
            return
        if status in ENDED:
            run_id = None  # tried again: a run of its own
        run_id = self.tracking.log_child(self.parent, child, self.data, run_id)
        self.children[row.key] = (run_id, child.outcome)

    def run_of(self, row: TrialRow) -> str:
        """The child run of a row that was logged."""
        return self.children[row.key][0]

    def log_files(self, files: list[Path]) -> None:
        """Artifacts of the parent."""
        self.tracking.log_files(self.parent, [file for file in files if file.exists()])


def child_of(row: TrialRow) -> ChildRun:
    """A row as a run."""
    metrics = {name: getattr(row, name) for name in METRICS}
    if row.speed is not None:
        metrics |= {"speed": row.speed.median, "speed_q25": row.speed.q25}
        metrics |= {"speed_q75": row.speed.q75}
        metrics |= {"speed_low": row.speed.low, "speed_high": row.speed.high}
    if row.correct:
        metrics["accuracy_low"], metrics["accuracy_high"] = row.accuracy_interval
    tags = {
        "fidelity": row.fidelity,
        "trial_status": row.status,
        "baseline": str(row.is_baseline).lower(),
        "certificate": row.certificate or "none",
        "drafting_ends": row.drafting_ends or "none",
    }
    if row.error:
        tags["error"] = row.error[:5000]
    return ChildRun(
        trial_id=row.key,
        name=f"{row.fidelity}: {spell(row.options)}",
        params={"fidelity": row.fidelity} | flat_knobs(row.options),
        metrics={name: float(value) for name, value in metrics.items() if value is not None},
        tags=tags,
        outcome=OUTCOMES[row.status],
        record=row.model_dump(mode="json"),
        started=row.started,
        ended=row.started + row.seconds,
    )
