"""``maskahead report sweep``: tables and plots again, from a folder or from MLflow alone."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cluster.passwords import without_passwords
from cluster.tracking import LoggedRun, Tracking
from tasks.whole import read_back
from tune.champion import choose_champion
from tune.config import SweepConfig
from tune.folder import CONFIG, SweepFolder
from tune.results import REPORT, write_leaderboard, write_plots
from tune.row import TrialRow

OpenStore = Callable[[], Tracking]


@dataclass(frozen=True)
class Sweep:
    """All that a report needs."""

    rows: tuple[TrialRow, ...]
    config: SweepConfig
    command: str
    source: str
    """Where it was read."""

    @property
    def champion(self) -> TrialRow | None:
        """By the sweep's own policy; the reference is told by its options."""
        reference = self.config.reference
        keys = [r.key for r in self.rows if r.fidelity == "live" and r.options == reference]
        if not keys:
            return None
        return choose_champion(self.rows, keys[0], self.config.champion, self.config.objectives)


def read_sweep(named: str, runs: Path, open_store: OpenStore) -> Sweep:
    """The sweep in a folder (``NAME``, ``runs/NAME`` or a path) or, where there is none, of a run
    in the store, finished or not.

    Raises ``ValueError`` when neither is there.
    """
    for path in (Path(named), runs / named):
        if (path / CONFIG).exists():
            return from_folder(SweepFolder(path))
    tracking = open_store()
    run = tracking.find(named)
    return from_store(tracking, tracking.get(run.parent) if run.parent else run)


def from_folder(folder: SweepFolder) -> Sweep:
    """What lies in the folder, of a sweep that runs or was cut short too."""
    config = folder.config
    told = folder.path / "sweep.json"
    remedy = "move it away, or resume the sweep, which writes it anew"
    facts = read_back(told, lambda data: {**json.loads(data)}, remedy) if told.exists() else {}
    command = facts.get("command")
    return Sweep(tuple(folder.rows.all()), config, command or "unknown", str(folder.path))


def from_store(tracking: Tracking, run: LoggedRun) -> Sweep:
    """From the parent's ``config.json`` and every child's ``trial.json``; of a trial that was tried
    again, the run that counts."""
    config = tracking.read(run.run_id, CONFIG)
    if config is None:
        raise ValueError(f"run {run.name!r} is no sweep: it has no {CONFIG}")
    children = tracking.children(run.run_id).values()
    texts = [tracking.read(child, "trial.json") for child, _ in children]
    rows = [TrialRow.model_validate_json(text) for text in texts if text]
    return Sweep(
        tuple(sorted(rows, key=lambda row: row.started + row.seconds)),
        SweepConfig.model_validate(json.loads(config)["config"]),
        run.tags.get("command", "unknown"),
        f"{without_passwords(tracking.uri)} run {run.run_id}",
    )


def report_sweep(sweep: Sweep, out: Path) -> list[Path]:
    """Write leaderboard and plots into ``out``; returns the files.

    Raises ``ValueError`` for a sweep without a finished trial.
    """
    if not any(row.done for row in sweep.rows):
        raise ValueError(f"{sweep.source}: no trial has finished yet, there is nothing to report")
    out.mkdir(parents=True, exist_ok=True)
    write_leaderboard(sweep.rows, sweep.champion, sweep.command, out)
    write_plots(sweep.rows, sweep.champion, out)
    return [out / name for name in REPORT]
