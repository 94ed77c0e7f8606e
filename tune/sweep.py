"""``maskahead sweep``: record, replay, run the best live, rank, report, register the champion."""

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.target_pool import TargetPool
from cluster.configuration import RUNS
from cluster.console import open_console
from cluster.log_queue import LogQueue
from cluster.passwords import without_passwords
from cluster.session import Resources, session
from cluster.tracking import DataSource, Tracking
from cluster.tracking.machine import machine_metrics
from cluster.tracking.registry import CHAMPION
from tune.check import Checked, check
from tune.config import SweepConfig
from tune.estimate import estimate_forward
from tune.folder import CONFIG, FINISHED, SweepFolder, check_name, held, open_folder
from tune.keys import trial_key
from tune.logbook import Logbook
from tune.plan import plan
from tune.progress import SweepProgress
from tune.provenance import identity, provenance
from tune.registered import lineage_of, register_best
from tune.results import Results
from tune.row import TrialRow
from tune.stages import Running, run_stages
from tune.summary import print_outcome, print_plan


@dataclass(frozen=True)
class SweepOutcome:
    """What a sweep found, and where it lies; a dry run finds nothing."""

    folder: Path | None
    rows: tuple[TrialRow, ...] = ()
    champion: TrialRow | None = None
    tracking_uri: str = ""


def run_sweep(
    config: SweepConfig, name: str | None, resume: bool, dry_run: bool, command: str
) -> SweepOutcome:
    """Run a sweep into ``runs/NAME`` and print what it found; a dry run only tells the plan.

    Raises ``ValueError`` for bad input, before anything is started.
    """
    runs, console = RUNS.resolve(), open_console()
    if name is not None:
        check_name(name)
    checked = check(config, runs)
    forward = estimate_forward(config, checked.spec, runs)
    stages = plan(checked.config, forward.seconds)
    if dry_run:
        print_plan(config, stages, forward.source, console)
        return SweepOutcome(None)
    folder = open_folder(runs, name, resume, config)
    with held(folder.path), SweepProgress(stages) as progress:
        folder.claim(identity(checked.config, checked.problems))
        folder.rows.forget_lost()
        progress.begin("start")
        with opened(checked, runs, progress.note) as (tracking, resources, pool):
            results = sweep(checked, folder, tracking, resources, pool, progress, command)
    rows, champion = tuple(results.rows.values()), results.champion
    print_outcome(rows, champion, folder.path, without_passwords(tracking.uri), console)
    return SweepOutcome(folder.path, rows, champion, tracking.uri)


@contextmanager
def opened(
    checked: Checked, runs: Path, tell: Callable[[str], None]
) -> Iterator[tuple[Tracking, Resources, TargetPool]]:
    """The tracking store (made beside Ray's start, by this process alone), the cluster, and the
    targets that all trials share."""
    config = checked.config
    with ThreadPoolExecutor(1) as pool:
        tracking = pool.submit(Tracking, checked.uri, runs / "artifacts")
        with (
            session(config.cluster) as resources,
            TargetPool.open(
                config.target, config.drafter, config.space.methods, config.pool, tell
            ) as groups,
        ):
            yield tracking.result(), resources, groups


def sweep(
    checked: Checked,
    folder: SweepFolder,
    tracking: Tracking,
    resources: Resources,
    pool: TargetPool,
    progress: SweepProgress,
    command: str,
) -> Results:
    """All stages under one parent run, which ends as the sweep does."""
    config, found = checked.config, identity(checked.config, checked.problems)
    reference_key = trial_key(config, found, "live", config.reference)
    results = Results(folder, config, reference_key)
    results.facts = provenance(found, pool.first, str(resources), command)
    data = DataSource("heldout", checked.problems.digest, json.dumps(config.tasks.model_dump()))
    target = Path(config.target.path).name
    logbook = Logbook(tracking, folder.sweep_id, f"{RUNS}/{folder.name}", target, data)
    logbook.describe(config.space.model_dump(mode="json"), flat_tags(results.facts))
    logbook.log_files([folder.path / CONFIG])
    remedy = "all results are on disk: start the store again, and --resume"
    queue = LogQueue(logbook.log, progress.note, "trials", remedy)
    running = Running(checked, found, folder, pool, results, logbook, queue, progress)
    with tracking.lasting(logbook.parent):
        with machine_metrics(tracking, logbook.parent):
            traces = run_stages(running, RUNS.resolve() / "traces")
        conclude(running, ", ".join(folder.name for folder in traces.values()))
    return results


def conclude(running: Running, traces: str) -> None:
    """Plots, ``best.yaml`` and artifacts; the champion becomes ``maskahead@champion``. ``traces``
    are the digests of what was replayed."""
    results, logbook, folder = running.results, running.logbook, running.folder
    champion = results.champion
    results.write_plots()
    running.queue.flush()
    if champion is not None:
        run_id = logbook.run_of(champion)
        best = results.write_best(champion, run_id)
        logbook.tracking.log_files(run_id, [best])
        digests = {**running.identity, "traces": traces}
        lineage = lineage_of(digests, logbook.parent, champion)
        register_best(logbook.tracking, champion, run_id, best, lineage, [CHAMPION])
    logbook.conclude(list(results.rows.values()), champion, {"digests.traces": traces})
    logbook.log_files(results.files())
    folder.mark(FINISHED)


def flat_tags(facts: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested facts as tags with dotted keys."""
    tags: dict[str, str] = {}
    for name, value in facts.items():
        if isinstance(value, Mapping):
            tags |= flat_tags(value, f"{prefix}{name}.")
        else:
            tags[prefix + name] = str(value)
    return tags
