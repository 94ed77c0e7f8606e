"""Trials under Ray Tune: finished ones are not run again, bad and slow ones fail with a reason."""

from dataclasses import replace
from pathlib import Path

import pytest

from decoders.trace_store import TraceStore
from models.checkpoint import read_spec
from tests.tune.conftest import InProcess
from tests.tune.rows import row
from tune.config import SweepConfig
from tune.cost import KNOTS, CostCurve
from tune.problems import heldout
from tune.recording import record_missing, trace_manifest
from tune.row import TrialRow
from tune.search import search_replays
from tune.trial import TrialJob

pytestmark = pytest.mark.ray

COST = CostCurve(forward=tuple(0.01 * k for k in KNOTS), drafter={"order": (0.001, 0.002, 0.003)})


@pytest.fixture
def job(
    sweep_config: SweepConfig, sweep_target: Path, group: InProcess, tmp_path: Path
) -> TrialJob:
    """Traces of every rule but cap 0.9 at T=0.8, whose folder is missing."""
    problems = heldout(sweep_config.tasks, sweep_config.tasks.recorded)
    identity = {"target": "t", "problems": problems.digest, "drafter": "d"}
    traces = {
        rule: tmp_path / f"traces-{rule.cap}-{rule.temperature}" for rule in sweep_config.rules
    }
    job = TrialJob(sweep_config, tmp_path / "trials", identity, traces, COST)
    for options, folder in traces.items():
        key = job.key("replay", options)
        baseline = row(key, options, fidelity="replay")
        job.rows.write(baseline)
        if (options.cap, options.temperature) != (0.9, 0.8):
            spec = read_spec(sweep_target)
            manifest = trace_manifest("t", "t", "float64", spec, problems.digest, options)
            store = TraceStore.create(folder, manifest)
            record_missing(group, store, problems, options, lambda n: None)
    return job


@pytest.mark.usefixtures("ray_cluster")
def test_bad_points_fail_with_a_reason_and_the_search_goes_on(job: TrialJob) -> None:
    rows: list[TrialRow] = []
    many = job.config.model_copy(
        update={"replay": job.config.replay.model_copy(update={"trials": 12})}
    )
    job = replace(job, config=many)
    search_replays(job, [], rows.append)
    assert len(rows) == 12
    failed = {row.key: row for row in rows if not row.done}
    assert failed, "some of twelve settings have the rule without traces"
    for each in failed.values():
        assert (each.options.cap, each.options.temperature) == (0.9, 0.8)
        assert "holds no traces" in (each.error or "")
    done = [row.options for row in rows if row.done]
    assert all((options.cap, options.temperature) != (0.9, 0.8) for options in done)
    stamps = {path: path.stat().st_mtime_ns for path in job.rows_folder.iterdir()}
    again: list[TrialRow] = []
    finished = [row for row in job.rows.all() if row.options.method != "standard"]
    search_replays(
        replace(job, config=job.config.model_copy(update={"replay": job.config.replay})),
        finished,
        again.append,
    )
    for path, stamp in stamps.items():
        assert path.stat().st_mtime_ns == stamp, "a finished trial is not run again"
    assert [row.key for row in again[: len(finished)]] == [row.key for row in finished]


@pytest.mark.usefixtures("ray_cluster")
def test_a_trial_that_takes_too_long_is_ended_and_failed_and_nothing_else_is_blamed(
    job: TrialJob, capfd: pytest.CaptureFixture[str]
) -> None:
    few = job.config.model_copy(
        update={
            "trial_seconds": 0.001,
            "replay": job.config.replay.model_copy(update={"trials": 2}),
        }
    )
    rows: list[TrialRow] = []
    search_replays(replace(job, config=few), [], rows.append)
    assert len(rows) == 2
    for each in rows:
        assert not each.done
        assert each.error == "took longer than trial_seconds 0.001"
    shown = "".join(capfd.readouterr())
    assert "died" not in shown, "Ray would speak of crashes and of lack of memory"
