"""What a sweep's runs are good for: compared, promoted, reported from the store alone."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

import maskahead
from cluster.tracking import DataSource, Tracking
from cluster.tracking.registry import find_version
from tests.tune.rows import chain, row, standard
from tune.config import SweepConfig
from tune.folder import SweepFolder, open_folder
from tune.logbook import Logbook
from tune.registered import promote
from tune.results import REPORT
from tune.row import TrialRow
from tune.trial import failed_row

REFERENCE = row("ref", standard())
FAST = row("fast", chain(4), speed=2.0, nfe_factor=2.2)
OTHER = row("other", chain(8), speed=1.5, nfe_factor=3.0)
REPLAYED = row("replayed", chain(5), fidelity="replay", speed=1.9)
FAILED = failed_row("broken", "live", chain(6), "GroupError: out of memory")
STOPPED = row("stopped", chain(32), speed=0.5).model_copy(
    update={"status": "stopped", "error": "slower than it", "started": FAILED.started + 1}
)
ROWS = [REFERENCE, FAST, OTHER, REPLAYED, FAILED, STOPPED]

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tracked")


@pytest.fixture(scope="module")
def folder(place: Path) -> SweepFolder:
    made = open_folder(place / "runs", "one", False, SweepConfig())
    for each in ROWS:
        made.rows.write(each)
    return made


@pytest.fixture(scope="module")
def logbook(folder: SweepFolder, tracking: Tracking) -> Logbook:
    """A sweep's runs, as they are when it has ended."""
    data = DataSource("heldout", "abc", "{}")
    made = Logbook(tracking, folder.sweep_id, "runs/one", "tiny", data)
    tags = {
        "command": "maskahead sweep --name one",
        "digests.target": "t1",
        "digests.order": "None",
    }
    made.describe({"cap": [1.0]}, tags)
    made.log_files([folder.path / "config.json"])
    for each in folder.rows.all():
        made.log(each)
    made.conclude(ROWS, FAST, {"digests.traces": "d1, d2"})
    return made


@pytest.fixture
def run(
    place: Path, logbook: Logbook, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> Run:
    """Run one command on the store; returns its exit code, and what it printed and said."""
    monkeypatch.chdir(place)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", logbook.tracking.uri)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*words: object) -> tuple[int, str, str]:
        code = maskahead.main([str(word) for word in words])
        return code, *capsys.readouterr()

    return call


def test_the_parent_is_named_after_its_folder_and_says_what_to_look_at(
    tracking: Tracking, logbook: Logbook
) -> None:
    parent = tracking.find("runs/one")
    assert parent.run_id == logbook.parent
    assert parent.name == "runs/one: sweep of tiny"
    note = parent.tags["mlflow.note.content"]
    for told in ("speed_reference", "certificate", "maskahead sweep --name one", "models:/"):
        assert told in note
    page = f"#/experiments/{tracking.experiment_id}/runs?workflowType=machine_learning"
    assert f"({page}&viewStateShareKey={parent.run_id})" in note
    assert parent.tags["champion"] == logbook.run_of(FAST)
    assert parent.metrics["champion/speed_reference"] == 2.0
    counts = {name: parent.metrics[f"trials{name}"] for name in ("", "_failed", "_stopped")}
    assert counts == {"": 6, "_failed": 1, "_stopped": 1}


def test_the_page_of_a_sweep_shows_its_live_trials_fastest_first_by_what_was_logged(
    tracking: Tracking, logbook: Logbook
) -> None:
    experiment = tracking.client.get_experiment(tracking.experiment_id)
    view = json.loads(experiment.tags[f"mlflow.sharedViewState.{logbook.parent}"])
    order = [f"{view['orderByKey']} DESC"]
    runs = tracking.client.search_runs(
        [experiment.experiment_id], view["searchFilter"], 1, 9, order
    )
    assert [run.data.tags["trial_id"] for run in runs] == [
        "fast",
        "other",
        "ref",
        "stopped",
        "broken",
    ]
    assert runs[-1].data.tags["mlflow.note.content"] == FAILED.error
    kinds = ("metrics", "params", "tags")
    logged = {f"{k}.`{name}`" for run in runs for k in kinds for name in getattr(run.data, k)}
    assert set(view["selectedColumns"]) <= logged


def test_children_last_as_long_as_their_trials(tracking: Tracking, logbook: Logbook) -> None:
    times = {"key": "took", "started": 1_700_000_000.0, "seconds": 12.5}
    took = FAST.model_copy(update=times)
    logbook.log(took)
    run = tracking.get(logbook.run_of(took))
    assert (run.started, run.ended) == (1_700_000_000.0, 1_700_000_012.5)
    tracking.client.delete_run(run.run_id)


def test_compare_shows_what_differs_the_certificates_and_all_metrics(
    run: Run, place: Path, logbook: Logbook
) -> None:
    code, shown, _ = run("compare", "runs/one", logbook.run_of(REFERENCE), "--out", "new/c.json")
    assert code == 0
    found = json.loads((place / "new" / "c.json").read_text())
    assert [one["id"] for one in found["runs"]] == [logbook.run_of(FAST), logbook.run_of(REFERENCE)]
    assert found["settings"]["method"] == ["chain", "standard"]
    assert found["settings"]["budget"] == ["4", "-"]
    assert "fidelity" not in found["settings"]
    assert found["certificate"] == ["exact", "exact"]
    assert found["metrics"]["speed_reference"] == [2.0, 1.0]
    assert next(iter(found["metrics"])) == "speed_reference"
    for told in ("setting method", "metric accuracy", "certificate"):
        assert told in shown
    code, _, said = run("compare", "runs/one")
    assert (code, said.count("\n")) == (2, 1)
    assert "at least two" in said


def test_promote_gives_a_live_trial_a_version_with_its_lineage_and_moves_the_alias(
    run: Run, tracking: Tracking, logbook: Logbook
) -> None:
    code, _, said = run("promote", "runs/one")
    assert code == 0, said
    first = find_version(tracking, "models:/maskahead@champion")
    assert first.run_id == logbook.run_of(FAST)
    assert first.tags == {
        "format": "1",
        "target": "t1",
        "traces": "d1, d2",
        "sweep_run": logbook.parent,
        "certificate": "exact",
    }
    code, _, said = run("promote", logbook.run_of(OTHER), "--alias", "champion")
    assert code == 0
    assert f"before it named version {first.number}" in said
    assert find_version(tracking, "models:/maskahead@champion").run_id == logbook.run_of(OTHER)
    code, _, said = run("promote", f"maskahead/{first.number}", "--alias", "champion")
    assert code == 0
    assert find_version(tracking, "models:/maskahead@champion").number == first.number
    assert "decode:" in (tracking.read(first.run_id, "best.yaml") or "")


@pytest.mark.parametrize(
    ("promoted", "said"), [(REPLAYED, "was only replayed"), (FAILED, "failed; promote a live")]
)
def test_what_was_not_measured_on_the_target_is_not_promoted(
    tracking: Tracking, logbook: Logbook, promoted: TrialRow, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        promote(tracking, logbook.run_of(promoted), "champion")


def test_a_report_from_the_store_alone_equals_the_one_from_the_folder(
    run: Run, place: Path, folder: SweepFolder
) -> None:
    code, _, said = run("report", "sweep", "runs/one", "--out", "from-folder")
    assert code == 0, said
    assert "6 trials, 1 failed" in said
    hidden = folder.path.rename(place / "moved")
    try:
        code, _, said = run("report", "sweep", "runs/one", "--out", "from-store")
    finally:
        hidden.rename(folder.path)
    assert code == 0, said
    assert "sqlite:///" in said
    for name in REPORT:
        assert (place / "from-store" / name).stat().st_size > 0
    for name in ("leaderboard.md", "leaderboard.csv"):
        ours, theirs = ((place / f"from-{s}" / name).read_text() for s in ("store", "folder"))
        if name.endswith("csv"):
            assert ours == theirs
    rows = list(csv.DictReader(ours.splitlines()))
    assert [one["key"] for one in rows if one["champion"] == "True"] == ["fast"]


def test_a_report_of_what_is_not_there_says_which_sweeps_are(run: Run) -> None:
    code, _, said = run("report", "sweep", "runs/two")
    assert (code, said.count("\n")) == (2, 1)
    assert "runs/one" in said
