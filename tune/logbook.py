"""What a sweep writes to MLflow: one parent, one child a trial, all from the driver."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster.tracking import ChildRun, DataSource, Outcome, Tracking
from cluster.tracking.store import LONGEST_TAG
from tune.note import NOTE_TAG, sweep_note, trials_view
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
ROUNDING = 0.001
"""Seconds: a store keeps whole milliseconds."""


class Logbook:
    """The runs of one sweep; a trial is logged once, whatever was killed in between."""

    def __init__(
        self, tracking: Tracking, sweep_id: str, folder: str, target: str, data: DataSource
    ) -> None:
        """``folder`` is the sweep's, as in ``runs/1``."""
        self.tracking = tracking
        self.data = data
        self.folder = folder
        self.parent = tracking.parent(sweep_id, f"{folder}: sweep of {target}")
        self.children = tracking.children(self.parent)

    def describe(self, space: Mapping[str, Any], tags: Mapping[str, str]) -> None:
        """The parent's parameters (the search space) and tags."""
        params = {f"space.{name}": json.dumps(value) for name, value in space.items()}
        page = self.tracking.keep_view(self.parent, trials_view(self.parent))
        note = sweep_note(self.folder, tags, page)
        own = {"folder": self.folder, "kind": "sweep", NOTE_TAG: note}
        self.tracking.log(self.parent, params, {}, {**tags, **own}, self.data)

    def log(self, row: TrialRow) -> None:
        """The child run of a finished trial; one that was tried again has a new one."""
        run_id, status = self.children.get(row.key, (None, ""))
        child = child_of(row)
        if run_id and (status == "FINISHED" or self._holds(run_id, status, child)):
            return
        if run_id is None or status in ENDED:  # tried again: a run of its own
            run_id = self.tracking.begin_child(self.parent, child)
            # Known at once: a store that goes away in the middle is told the rest of it later.
            self.children[row.key] = (run_id, "RUNNING")
        self.tracking.log_child(self.parent, child, self.data, run_id)
        self.children[row.key] = (run_id, child.outcome)

    def _holds(self, run_id: str, status: str, child: ChildRun) -> bool:
        """Whether this run is of this very try: tries begin at different times."""
        if status != child.outcome:
            return False
        return abs(self.tracking.get(run_id).started - child.started) < ROUNDING

    def run_of(self, row: TrialRow) -> str:
        """The child run of a row that was logged."""
        return self.children[row.key][0]

    def conclude(
        self, rows: Sequence[TrialRow], champion: TrialRow | None, facts: Mapping[str, str]
    ) -> None:
        """What became of the sweep, on the parent: counts, the champion's numbers, ``facts``."""
        counts = {
            "trials": len(rows),
            "trials_failed": sum(row.status == "failed" for row in rows),
            "trials_stopped": sum(row.status == "stopped" for row in rows),
        }
        tags = {**facts, "champion": "none"}
        best: dict[str, float] = {}
        if champion is not None:
            child = child_of(champion)
            best = {f"champion/{name}": value for name, value in child.metrics.items()}
            tags["champion"] = self.run_of(champion)
            tags["champion.setting"] = spell(champion.options)
            tags["champion.certificate"] = champion.certificate or "none"
        self.tracking.log(self.parent, {}, counts | best, tags)

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
        tags["error"] = tags[NOTE_TAG] = row.error[:LONGEST_TAG]
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
        problems={"problem": list(row.correct), "correct": list(row.correct.values())},
    )
