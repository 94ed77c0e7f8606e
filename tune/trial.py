"""Ray Tune trials of both fidelities: idempotent, bounded in time, and never a model load.

A finished trial's row lies on disk under the hash of its configuration and answers for it. The
module stays light: a live trial only holds a group's handle and imports no torch.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray import tune

from actors.lease_desk import Leases, NoGroupLeft
from decoders.options import DecodeOptions
from tune.config import SweepConfig
from tune.cost import CostCurve
from tune.hopeless import TIMED, best_so_far, why_hopeless
from tune.keys import trial_key
from tune.objectives import values_of
from tune.row import Fidelity, TrialRow, TrialRows

if TYPE_CHECKING:
    from actors.target_group import TargetGroup
    from decoders.proposers.base import Proposer
    from decoders.trace import Trace
    from tune.pairs import Judge, Pairs

Rule = DecodeOptions
"""The options of a draft-free run that is recorded."""
KILL_SECONDS = 10.0
"""In which Ray ends a process that it was asked to end; otherwise it ends itself."""


@dataclass(frozen=True)
class TrialJob:
    """What all trials of one sweep share; plain values that travel to any process."""

    config: SweepConfig
    rows_folder: Path
    identity: Mapping[str, Any]
    """What decides results beside the options (see ``trial_key``)."""
    traces: Mapping[Rule, Path]
    cost: CostCurve

    def key(self, fidelity: Fidelity, options: DecodeOptions) -> str:
        return trial_key(self.config, self.identity, fidelity, options)

    @property
    def rows(self) -> TrialRows:
        return TrialRows(self.rows_folder)


def setting_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The knobs in a trial's configuration: drawn one by one, or listed as whole settings."""
    return dict(config.get("setting", config))


class RowTrial(tune.Trainable):
    """Answers one setting at a time with a row, its own or the one on disk."""

    fidelity: Fidelity

    def setup(self, config: dict[str, Any], job: TrialJob | None = None) -> None:
        assert job is not None, "trials are made with_parameters"
        self.job = job
        self.options = job.config.options(**setting_of(config))

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.options = self.job.config.options(**setting_of(new_config))
        return True

    def step(self) -> dict[str, Any]:
        key = self.job.key(self.fidelity, self.options)
        row = self.job.rows.find(key) or self._run(key)
        found = values_of(row, self.job.config.objectives)
        return {"done": True, "key": key, "status": row.status, **found}

    def measure(self, key: str) -> TrialRow:
        """Find out, within :meth:`limited` time; the subclass's part."""
        raise NotImplementedError

    @contextmanager
    def limited(self, key: str) -> Iterator[None]:
        """The trial's time runs; when it is over the trial has failed, and its process ends."""
        self.started = time.time()
        limit = self.job.config.trial_seconds

        def expire() -> None:
            try:
                self._write(self._failed(key, f"took longer than trial_seconds {limit:g}"))
                self.give_up()
            finally:  # a group that cannot even be let go of must not keep the trial running
                end_actor()

        with deadline(limit, expire):
            yield

    def give_up(self) -> None:
        """What must be let go before this process ends in the middle of a trial."""

    def _run(self, key: str) -> TrialRow:
        self.started = time.time()
        try:
            row = self.measure(key)
        except Exception as error:  # the process's edge: a bad point must not end the sweep
            row = self._failed(key, f"{type(error).__name__}: {error}")
            row = row.model_copy(update={"lost": isinstance(error, NoGroupLeft)})
        return self._write(row)

    def _failed(self, key: str, error: str) -> TrialRow:
        return failed_row(key, self.fidelity, self.options, error)

    def _write(self, row: TrialRow) -> TrialRow:
        times = {"started": self.started, "seconds": time.time() - self.started}
        return self.job.rows.write(row.model_copy(update=times))


def failed_row(key: str, fidelity: Fidelity, options: DecodeOptions, error: str) -> TrialRow:
    """The row of a trial that found nothing out; ``error`` in one line, since tables show it."""
    return TrialRow(
        key=key,
        fidelity=fidelity,
        options=options,
        status="failed",
        error=" ".join(error.split()),
        started=time.time(),
    )


@contextmanager
def deadline(seconds: float, expire: Callable[[], None]) -> Iterator[None]:
    """Call ``expire`` from another thread unless the block ends within ``seconds``; once that has
    begun, the block does not end before it: what it found comes too late."""
    timer = threading.Timer(seconds, expire)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def end_actor() -> None:
    """End this actor's process, whatever its other threads do.

    By Ray's hand: it shows the driver a page on crashes and the out-of-memory killer for a process
    that ends by itself in the middle of a call.
    """
    try:
        ray.kill(ray.get_runtime_context().current_actor)
        time.sleep(KILL_SECONDS)
    finally:
        os._exit(1)


class ReplayTrial(RowTrial):
    """Replays recorded traces; keeps traces, drafters and their scores from trial to trial."""

    fidelity = "replay"

    def setup(self, config: dict[str, Any], job: TrialJob | None = None) -> None:
        import torch

        super().setup(config, job)
        torch.set_num_threads(1)
        self.proposers: dict[str, Proposer] = {}
        self.traces: dict[Rule, list[Trace]] = {}

    def measure(self, key: str) -> TrialRow:
        from tune.replaying import replay_row

        config, options = self.job.config, self.options
        rule = options.draft_free()
        baseline = self._recorded(rule)
        with self.limited(key):
            return replay_row(
                key,
                options,
                self._traces(rule),
                self._proposer(options.method),
                self.job.cost,
                baseline.correct,
                self._recorded(config.reference),
            )

    def _recorded(self, draft_free: DecodeOptions) -> TrialRow:
        row = self.job.rows.find(self.job.key("replay", draft_free))
        assert row is not None, "draft-free rows are made while recording"
        return row

    def _traces(self, rule: Rule) -> list[Trace]:
        from decoders.trace_store import TraceStore

        if rule not in self.traces:
            self.traces[rule] = list(TraceStore(self.job.traces[rule]).load())
        return self.traces[rule]

    def _proposer(self, method: str) -> Proposer:
        from tune.replaying import open_replay_proposer

        if method not in self.proposers:
            self.proposers[method] = open_replay_proposer(method, self.job.config)
        return self.proposers[method]


class LiveTrial(RowTrial):
    """Leases a target group, which outlives all trials, and returns it clean."""

    fidelity = "live"

    def setup(
        self, config: dict[str, Any], job: TrialJob | None = None, leases: Leases | None = None
    ) -> None:
        super().setup(config, job)
        assert leases is not None, "trials are made with_parameters"
        self.leases = leases
        self.group: TargetGroup | None = None

    def give_up(self) -> None:
        if self.group is not None:
            self.group.abandon()

    def measure(self, key: str) -> TrialRow:
        return self.leases.use(key, lambda group: self._measure_on(group, key))

    def _measure_on(self, group: TargetGroup, key: str) -> TrialRow:
        from tune.live import live_row

        self.group, options = group, self.options
        baseline = self._baseline()
        with self.limited(key):
            judge = self._judge(baseline)
            row = live_row(key, options, self.job.config, group, baseline, judge)
        return row.model_copy(update={"node": group.facts()["node"]})

    def _baseline(self) -> TrialRow | None:
        """The row of the setting's own draft-free run; none for such a run itself."""
        if not self.options.drafts:
            return None
        baseline = self.job.rows.find(self.job.key("live", self.options.draft_free()))
        if baseline is None or not baseline.done:
            reason = baseline.error if baseline else "it did not run"
            kind = NoGroupLeft if baseline is not None and baseline.lost else ValueError
            raise kind(f"its draft-free baseline has no result: {reason}")
        return baseline

    def _judge(self, baseline: TrialRow | None) -> Judge:
        """Ends a drafting setting that cannot win, where that is asked for and can be told."""
        job, config = self.job, self.job.config
        if baseline is None or not config.live.stop_hopeless or config.objectives[0] not in TIMED:
            return lambda pairs: None

        def judge(pairs: Pairs) -> str | None:
            reference_key = job.key("live", config.reference)
            best = best_so_far(job.rows.all(), reference_key, config)
            return why_hopeless(pairs.speed(), baseline, best, config.reference)

        return judge
