"""The stages of a sweep on an open cluster: record, measure costs, replay, live."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.target_pool import TargetPool
from cluster.log_queue import LogQueue
from decoders.options import Acceptance, DecodeOptions
from decoders.trace_store import TraceStore
from tune.champion import best_replayed, choose_live
from tune.check import Checked
from tune.config import SweepConfig
from tune.cost import CostCurve, measure_cost
from tune.folder import REPLAYED, SweepFolder
from tune.logbook import Logbook
from tune.plan import live_seconds
from tune.progress import SweepProgress
from tune.recording import open_traces, record_missing, trace_manifest
from tune.replaying import replay_row
from tune.results import Results
from tune.row import TrialRow
from tune.search import run_live, search_replays
from tune.space import LIVE_KNOB, simsd_settings, spell
from tune.trial import Rule, TrialJob


@dataclass(frozen=True)
class Running:
    """A sweep under way, and where its rows go."""

    checked: Checked
    identity: Mapping[str, Any]
    folder: SweepFolder
    pool: TargetPool
    results: Results
    logbook: Logbook
    queue: LogQueue[TrialRow]
    progress: SweepProgress

    def take(self, row: TrialRow) -> None:
        """A finished trial: into the tables, the store and the display."""
        self.results.add(row)
        self.queue.add(row)
        objectives = self.checked.config.objectives
        rows = list(self.results.rows.values())
        best = self.results.champion or best_replayed(rows, objectives)
        if best is not None:
            self.progress.found_best(f"{spell(best.options)} x{best.speed_reference:.2f}")
        told = f"x{row.speed_reference:.2f}" if row.done else f"{row.status.upper()} {row.error}"
        self.progress.advance(f"{spell(row.options)} {told}")


def run_stages(running: Running, traces_root: Path) -> Mapping[Rule, Path]:
    """All stages; each leaves out what an earlier run of this sweep has finished. Returns the
    folders of the traces that were replayed."""
    traces = record_rules(running, traces_root)
    job = TrialJob(
        config=running.checked.config,
        rows_folder=running.folder.rows.folder,
        identity=running.identity,
        traces=traces,
        cost=find_cost(running),
    )
    replay_baselines(running, job)
    # More targets load while settings are replayed.
    groups = running.pool.grow(most_live(job.config))
    replay_settings(running, job)
    try_live(running, job, groups)
    return traces


def record_rules(running: Running, root: Path) -> dict[Rule, Path]:
    """Draft-free traces of every rule; returns their folders."""
    checked, config = running.checked, running.checked.config
    running.progress.begin("record")
    folders: dict[Rule, Path] = {}
    for options in config.rules:
        manifest = trace_manifest(
            config.target.path,
            running.identity["target"],
            config.target.precision,
            checked.spec,
            checked.problems.digest,
            options,
        )
        store = open_traces(root, manifest)
        record_rule(running, options, store)
        folders[options] = store.folder
    return folders


def record_rule(running: Running, options: Rule, store: TraceStore) -> None:
    """The traces of one rule that are missing, from whatever group is there."""
    problems, text = running.checked.problems, spell(options)
    running.pool.leases.use(
        "record",
        lambda group: record_missing(
            group, store, problems, options, lambda n: running.progress.advance(text, n)
        ),
    )


def find_cost(running: Running) -> CostCurve:
    """The sweep's cost curve, measured the first time."""
    running.progress.begin("cost")
    cost = running.folder.cost()
    if cost is None:
        config = running.checked.config
        prompt = running.checked.problems.rows[0]
        measured = running.pool.leases.use(
            "cost",
            lambda group: measure_cost(group, prompt, config.reference, config.space.replayed),
        )
        cost = running.folder.keep_cost(measured)
    running.progress.advance("seconds a forward")
    return cost


def replay_baselines(running: Running, job: TrialJob) -> None:
    """The draft-free rows of all rules, with the accuracy of the recorded replies."""
    codec = running.checked.codec()
    running.progress.begin("replay", len(job.config.rules))
    reference: TrialRow | None = None
    for options in job.config.rules:
        key = job.key("replay", options)
        row = job.rows.find(key)
        if row is None:
            started = time.time()
            traces = {t.request.id: t for t in TraceStore(job.traces[options]).load()}
            ordered = [traces[p.id] for p in running.checked.problems.problems]
            replies = [codec.decode(trace.token_ids) for trace in ordered]
            correct = running.checked.problems.score(replies)
            row = replay_row(key, options, ordered, None, job.cost, correct, reference)
            times = {"started": started, "seconds": time.time() - started}
            row = job.rows.write(row.model_copy(update=times))
        reference = reference or row
        running.take(row)


def replay_settings(running: Running, job: TrialJob) -> None:
    """The search over the whole space, without the target."""
    if not job.config.space.replayed:
        return
    baselines = {job.key("replay", options) for options in job.config.rules}
    known = [r for r in job.rows.all() if r.fidelity == "replay" and r.key not in baselines]
    running.progress.begin("replay", max(job.config.replay.trials, len(known)))
    if running.folder.passed(REPLAYED) or job.config.replay.trials == 0:
        for row in known:
            running.take(row)
        return
    search_replays(job, known, running.take)
    running.folder.mark(REPLAYED)


def try_live(running: Running, job: TrialJob, groups: int) -> None:
    """The reference, the baselines of the chosen settings' rules, and these settings, on as many
    ``groups``."""
    config = job.config
    recorded = running.results.rows[job.key("replay", config.reference)]
    rows = list(running.results.rows.values())
    best = choose_live(rows, recorded, config.live.trials, config.objectives, config.champion)
    replayed = [row.options for row in best]
    chosen = [
        options.model_copy(update={LIVE_KNOB: horizon})
        for horizon in (0, *config.live.draft_refresh)
        for replayed_options in replayed
        for options in with_lossy(replayed_options, config.space.rule)
    ]
    drawn = simsd_settings(config.space, config.live.simsd, config.seed)
    chosen += [config.options(**setting) for setting in drawn]
    settings = live_settings(config.reference, chosen)
    answer = (recorded.nfe or 0) / recorded.n * job.cost.forward[0]
    num_rules = len(settings) - len(chosen)
    seconds = live_seconds(config, answer, num_rules, len(chosen))
    running.progress.replan("live", seconds / min(groups, len(settings)))
    running.progress.begin("live", len(settings))
    missing = []
    for options in settings:
        row = job.rows.find(job.key("live", options))
        if row is None:
            missing.append(options)
        else:
            running.take(row)
    if missing:
        run_on_pool(running, job, missing, groups)


def run_on_pool(
    running: Running, job: TrialJob, settings: Sequence[DecodeOptions], groups: int
) -> None:
    """Live trials on all groups; those that are not needed any more, or that somebody else waits
    for, are given back on the way."""
    pool, left = running.pool, len(settings)

    def take(row: TrialRow) -> None:
        nonlocal left
        left -= 1
        running.take(row)
        if groups > 1:
            pool.shrink(left)

    # Settings are compared with the rows of their baselines: these end before any of those begins.
    waves = [settings] if groups == 1 else split_baselines(settings)
    for wave in waves:
        if wave:
            run_live(job, pool.leases, wave, groups, take)


def most_live(config: SweepConfig) -> int:
    """Live trials at most."""
    return len(config.rules) + config.live.settings * len(config.space.rule) + config.live.simsd


def split_baselines(settings: Sequence[DecodeOptions]) -> list[list[DecodeOptions]]:
    """Draft-free settings, then the others."""
    free = [options for options in settings if not options.drafts]
    return [free, [options for options in settings if options.drafts]]


def live_settings(reference: DecodeOptions, chosen: list[DecodeOptions]) -> list[DecodeOptions]:
    """Baselines first, since the trials behind them are compared with their rows."""
    rules = dict.fromkeys(options.draft_free() for options in (reference, *chosen))
    return [*rules, *chosen]


def with_lossy(options: DecodeOptions, rules: Sequence[Acceptance]) -> list[DecodeOptions]:
    """An exact setting and, of ``sets``, the same with every lossy rule that is asked for."""
    lossy = [rule for rule in rules if rule != "exact" and options.method == "sets"]
    return [options, *(options.model_copy(update={"rule": rule}) for rule in lossy)]
