"""Running trials with Ray Tune: the search over replayed settings, and the list of live ones."""

import logging
import os
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")  # the new one shows a banner in any case
os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")  # a sweep ends by KeyboardInterrupt

import optuna
import ray
from ray import tune
from ray.tune.search.optuna import OptunaSearch
from ray.util.placement_group import NODE_ID_LABEL_KEY

from actors.lease_desk import Leases
from decoders.options import DecodeOptions
from tune.row import Fidelity, TrialRow
from tune.space import NEVER_DRAWN, draw_setting, first_settings, knobs_of
from tune.trial import LiveTrial, ReplayTrial, TrialJob, failed_row, setting_of

OnRow = Callable[[TrialRow], None]

TRIAL_SHARE = 0.001
"""Trials are bounded by their concurrency; Ray refuses one that needs nothing."""


class RowCallback(tune.Callback):
    """Hands every finished trial's row to ``on_row``, in the driver, a failed one's too."""

    def __init__(self, job: TrialJob, fidelity: Fidelity, on_row: OnRow) -> None:
        self.job = job
        self.fidelity: Fidelity = fidelity
        self.on_row = on_row

    def __reduce__(self) -> tuple[Any, ...]:
        # Tune writes down its callbacks so as to restore them; a sweep resumes from its own rows.
        return RowCallback, (self.job, self.fidelity, _ignore)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._hand_over(trial, "it ended without a result")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        error = trial.get_pickled_error() or trial.get_error() or "its process ended"
        lines = str(error).strip().splitlines() or [type(error).__name__]
        self._hand_over(trial, lines[-1])

    def _hand_over(self, trial: Any, reason: str) -> None:
        options = self.job.config.options(**setting_of(trial.config))
        key = self.job.key(self.fidelity, options)
        row = self.job.rows.find(key)
        if row is None:
            row = self.job.rows.write(failed_row(key, self.fidelity, options, reason))
        self.on_row(row)


def beside_the_driver() -> tune.PlacementGroupFactory:
    """Where trials run: their rows, and the traces that they replay, lie on this node's disk."""
    context = ray.get_runtime_context()
    return tune.PlacementGroupFactory(
        [{f"node:{ray.util.get_node_ip_address()}": TRIAL_SHARE}],
        bundle_label_selector=[{NODE_ID_LABEL_KEY: context.get_node_id()}],
    )


def _ignore(row: TrialRow) -> None:
    """Where rows go when nobody listens."""


def search_replays(job: TrialJob, finished: Sequence[TrialRow], on_row: OnRow) -> None:
    """Let Optuna choose ``replay.trials`` settings; those of ``finished`` rows come first, answered
    from disk, so that a resumed search knows what the first one had found out."""
    config = job.config
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    points = [
        {name: value for name, value in knobs_of(row.options).items() if name not in NEVER_DRAWN}
        for row in finished
    ]
    points += [point for point in first_settings(config.space) if point not in points]
    search = OptunaSearch(
        space=partial(draw_setting, config.space),
        metric=list(config.objectives),
        mode=["max"] * len(config.objectives),
        sampler=optuna.samplers.TPESampler(seed=config.seed),
        points_to_evaluate=points,
    )
    settings = tune.TuneConfig(
        search_alg=search,
        num_samples=max(config.replay.trials, len(finished)),
        max_concurrent_trials=config.replay.concurrency,
        reuse_actors=True,
    )
    trial = tune.with_parameters(ReplayTrial, job=job)
    _fit(trial, job, {}, settings, RowCallback(job, "replay", on_row))


def run_live(
    job: TrialJob,
    leases: Leases,
    settings: Sequence[DecodeOptions],
    groups: int,
    on_row: OnRow,
) -> None:
    """Run settings in this order, as many at a time as there are ``groups``."""

    def take(row: TrialRow) -> None:
        leases.give_back(row.key)  # its process may have ended without doing so
        on_row(row)

    space = {"setting": tune.grid_search([knobs_of(options) for options in settings])}
    chosen = tune.TuneConfig(max_concurrent_trials=groups, reuse_actors=True)
    trial = tune.with_parameters(LiveTrial, job=job, leases=leases)
    _fit(trial, job, space, chosen, RowCallback(job, "live", take))


def _fit(
    trainable: Any,
    job: TrialJob,
    space: dict[str, Any],
    settings: tune.TuneConfig,
    callback: RowCallback,
) -> None:
    """Run all trials; their rows are on disk afterwards, so what Tune keeps is thrown away."""
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # failed trials have rows
    placed = tune.with_resources(trainable, beside_the_driver())
    folder = job.rows_folder.parent / ".tune"
    shutil.rmtree(folder, ignore_errors=True)  # a killed sweep's
    tuner = tune.Tuner(
        placed,
        param_space=space,
        tune_config=settings,
        run_config=tune.RunConfig(
            name=callback.fidelity,
            storage_path=str(folder.resolve()),
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            # What a trial raises is in its row: only a process that ended is started once more.
            failure_config=tune.FailureConfig(max_failures=1),
            verbose=0,
            callbacks=[callback],
        ),
    )
    tuner.fit()
    shutil.rmtree(folder, ignore_errors=True)
