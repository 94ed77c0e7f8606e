"""A whole sweep on a tiny random target, its files and runs, and what a resumed one does again."""

import json
from pathlib import Path

import pytest
import yaml

from cluster.configuration import RunConfig
from cluster.tracking import Tracking
from cluster.tracking.registry import find_version
from tune.config import SweepConfig
from tune.folder import FINISHED, REPLAYED, SweepFolder
from tune.sweep import SweepOutcome, run_sweep

pytestmark = [pytest.mark.ray, pytest.mark.slow]

FILES = (
    "best.yaml",
    "leaderboard.csv",
    "leaderboard.md",
    "pareto.png",
    "pareto.html",
    "parallel.png",
    "parallel.html",
    "sweep.json",
    "config.json",
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sweep")


@pytest.fixture
def at_place(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the sweep's working directory, with a run id exported that must capture nothing."""
    monkeypatch.chdir(place)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLFLOW_RUN_ID", "0123456789abcdef0123456789abcdef")


def run(config: SweepConfig, resume: bool) -> SweepOutcome:
    return run_sweep(config, "one", resume, dry_run=False, command="maskahead sweep --name one")


@pytest.mark.usefixtures("ray_cluster", "at_place")
def test_a_sweep_leaves_its_files_its_runs_and_a_champion(
    place: Path, sweep_config: SweepConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = run(sweep_config, resume=False)
    folder = place / "runs" / "one"
    assert outcome.folder == folder
    assert sorted(path.name for path in place.iterdir()) == ["runs"], "nothing lies elsewhere"
    for name in FILES:
        assert (folder / name).stat().st_size > 0, name
    assert {row.fidelity for row in outcome.rows} == {"replay", "live"}
    assert all(row.done for row in outcome.rows)
    assert outcome.champion is not None
    assert outcome.champion.certificate == "exact"
    best = RunConfig.model_validate(yaml.safe_load((folder / "best.yaml").read_text()))
    assert best.decode == outcome.champion.options
    sweep = json.loads((folder / "sweep.json").read_text())
    assert sweep["command"] == "maskahead sweep --name one"
    assert sweep["champion"] == outcome.champion.key
    assert len(sweep["rows"]) == len(outcome.rows)
    shown = capsys.readouterr().out
    assert f"maskahead serve --config {folder / 'best.yaml'}" in shown
    assert outcome.tracking_uri in shown
    check_runs(outcome, best.run_id, place)


def check_runs(outcome: SweepOutcome, best_run: str | None, place: Path) -> None:
    """One finished parent, one child a row, the champion's version from its child."""
    tracking = Tracking(outcome.tracking_uri, place / "unused")
    client = tracking.client
    runs = client.search_runs([tracking.experiment_id])
    parents = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    assert [run.info.status for run in parents] == ["FINISHED"]
    children = [run for run in runs if run not in parents]
    ids = [run.data.tags["trial_id"] for run in children]
    assert sorted(ids) == sorted(row.key for row in outcome.rows)
    assert {run.data.tags["mlflow.parentRunId"] for run in children} == {parents[0].info.run_id}
    assert len({tuple(sorted(run.data.params)) for run in children}) == 1, "the same keys"
    assert any(run.data.tags["baseline"] == "true" for run in children)
    artifacts = {item.path for item in client.list_artifacts(parents[0].info.run_id)}
    assert set(FILES) <= artifacts
    version = find_version(tracking, "models:/maskahead@champion")
    assert version.run_id == best_run
    assert version.tags["target"] == parents[0].data.tags["digests.target"]
    assert version.tags["traces"] == parents[0].data.tags["digests.traces"]
    for row in outcome.rows:
        [run] = [run for run in children if run.data.tags["trial_id"] == row.key]
        own = {"fidelity": row.fidelity, "method": row.options.method, "cap": str(row.options.cap)}
        assert run.data.params.items() >= own.items()
        assert abs(run.info.start_time / 1000 - row.started) < 0.01
        assert abs((run.info.end_time - run.info.start_time) / 1000 - row.seconds) < 0.01
    assert any(name.startswith("system/") for name in parents[0].data.metrics)
    assert parents[0].info.run_name == "runs/one: sweep of tiny"


@pytest.mark.usefixtures("ray_cluster", "at_place")
def test_a_resumed_sweep_runs_only_what_is_missing(place: Path, sweep_config: SweepConfig) -> None:
    folder = SweepFolder(place / "runs" / "one")
    before = {row.key: row for row in folder.rows.all()}
    lost = [row for row in before.values() if row.options.drafts][-2:]
    for row in lost:
        (folder.rows.folder / f"{row.key}.json").unlink()
    for mark in (REPLAYED, FINISHED):
        (folder.path / mark).unlink()
    kept = {key: row for key, row in before.items() if row not in lost}
    stamps = {key: (folder.rows.folder / f"{key}.json").stat().st_mtime_ns for key in kept}
    outcome = run(sweep_config, resume=True)
    for key, stamp in stamps.items():
        assert (folder.rows.folder / f"{key}.json").stat().st_mtime_ns == stamp
    after = {row.key: row for row in outcome.rows}
    assert kept.items() <= after.items()
    best = yaml.safe_load((folder.path / "best.yaml").read_text())
    tracking = Tracking(outcome.tracking_uri, place / "unused")
    runs = tracking.client.search_runs([tracking.experiment_id])
    ids = [run.data.tags["trial_id"] for run in runs if "trial_id" in run.data.tags]
    assert len(ids) == len(set(ids)), "no duplicates"
    assert set(after) <= set(ids)
    assert len([run for run in runs if "mlflow.parentRunId" not in run.data.tags]) == 1
    assert best["run_id"] in {run.info.run_id for run in runs}


def test_a_dry_run_starts_and_writes_nothing(
    sweep_config: SweepConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = run_sweep(sweep_config, None, False, True, "maskahead sweep --dry-run")
    assert outcome.folder is None
    assert list(tmp_path.iterdir()) == []
    shown = capsys.readouterr().out
    assert "replay" in shown
    assert "estimated from a quick timing of this machine's matrix products" in shown


def test_answers_that_are_longer_than_the_target_are_refused_before_anything_starts(
    sweep_config: SweepConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    long = sweep_config.model_copy(update={"decode": {"max_new_tokens": 100_000}})
    with pytest.raises(ValueError, match=r"max_new_tokens make \d+ positions; this target has"):
        run_sweep(long, None, False, False, "maskahead sweep")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("at_place")
def test_a_dry_run_counts_on_what_the_last_sweep_of_the_target_measured(
    place: Path, sweep_config: SweepConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    run_sweep(sweep_config, None, False, True, "maskahead sweep --dry-run")
    assert f"estimated from the costs that {place / 'runs' / 'one'} measured" in (
        capsys.readouterr().out.replace("\n", "")
    )
