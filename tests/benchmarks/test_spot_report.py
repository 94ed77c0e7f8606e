"""The whole report on a tiny random target: its files, its promises, and going on."""

import csv
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.spot.check import Checked, check
from benchmarks.spot.config import SpotConfig
from benchmarks.spot.found import Table
from benchmarks.spot.recording import load_traces
from benchmarks.spot.run import TABLES, run_spot
from benchmarks.spot.stages import Report, record, replay
from cluster.configuration import validate
from cluster.tracking import Tracking
from drafters.bundle import save_order_model
from drafters.order_model import OrderModelConfig, build_order_model
from tests.text_target import save_text_target

SMALL = {
    "tasks": ["words"],
    "max_new_tokens": 20,
    "processes": 1,
    "main": {"problems": 2, "budgets": [3], "gammas": [0.0, 0.05]},
    "figures": {"commits": 4, "depths": 3, "states": 50},
    "sweeps": {"problems": 1, "temperatures": [0.0, 1.5], "caps": [1.0, 0.9], "budgets": [3]},
    "live": {"problems": 1},
    "equality": {"problems": 2, "dtypes": ["float64", "bfloat16"], "budgets": [3]},
}


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Checked:
    folder = save_text_target(tmp_path_factory.mktemp("spot-target") / "tiny")
    torch.manual_seed(0)
    sizes = OrderModelConfig(width=16, layers=1, heads=2, feed_forward=16)
    save_order_model(build_order_model(sizes), folder / "order")
    values = SMALL | {"target": {"path": str(folder), "dtype": "float64"}}
    return check(validate(SpotConfig, values))


@pytest.fixture(scope="module")
def tracking(tmp_path_factory: pytest.TempPathFactory) -> Tracking:
    folder = tmp_path_factory.mktemp("spot-tracking")
    return Tracking(f"sqlite:///{folder / 'mlflow.db'}", folder / "artifacts")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spot") / "report"


@pytest.fixture(scope="module")
def tables(checked: Checked, tracking: Tracking, out: Path) -> dict[str, Table]:
    made = run_spot(checked, out, "maskahead report spot", tracking)
    return {table.name: table for table in made}


def times(out: Path, *folders: str) -> dict[Path, int]:
    return {
        path: path.stat().st_mtime_ns
        for folder in folders
        for path in (out / folder).rglob("*")
        if path.is_file()
    }


def test_every_table_has_rows_a_note_and_a_csv(tables: dict[str, Table], out: Path) -> None:
    page = (out / "report.md").read_text()
    assert len(tables) == len(TABLES)
    for table in tables.values():
        assert table.rows, table.name
        assert table.note in page
        with (out / f"{table.name}.csv").open() as file:
            assert len(list(csv.DictReader(file))) == len(table.rows)
        keys = [tuple(row[key] for key in table.keys) for row in table.rows]
        assert len(set(keys)) == len(keys), f"{table.name}: keys name a row"
    assert "assumed, not measured" in page
    assert page.count(".png)") == len(list(out.glob("*.png"))) >= 12
    assert (out / "figures.html").exists()


def test_live_outputs_are_exact_and_replay_foretold_their_forwards(
    tables: dict[str, Table],
) -> None:
    live = tables["live"].rows
    assert len(live) == 2 * 6, "T = 0 and 1, five methods and SPOT-gamma"
    assert {(row["certificate"], row["as_replayed"]) for row in live} == {("exact 1/1", "1/1")}
    assert {row["certificate"] for row in tables["main"].rows} == {"exact 1/1"}


def test_many_copies_compute_what_one_does_where_the_dtype_holds_it(
    tables: dict[str, Table],
) -> None:
    rows = tables["equality"].rows
    assert [(row["dtype"], row["cap"]) for row in rows] == [
        (dtype, cap) for dtype in ("float64", "bfloat16") for cap in (1.0, 0.9)
    ]
    for row in rows:
        assert row["equal_low"] <= row["equal"] <= row["equal_high"]
        assert 0 < row["shared"] <= 1
        assert (row["margin"] is None) == (row["equal"] == 1)
    exact = [row for row in rows if row["dtype"] == "float64"]
    assert {(row["equal"], row["shared"]) for row in exact} == {(1, 1)}


def test_ceilings_and_baselines_are_where_they_must_be(tables: dict[str, Table]) -> None:
    factors = {(r["method"], r["budget"]): r["nfe_factor"] for r in tables["oracle"].rows}
    assert factors["oracle-joint", 3] == max(factors.values())
    capped = [row for row in tables["capped"].rows if row["rule"] == "capped"]
    free = next(r for r in capped if r["value"] == 1 and r["method"] == "draft-free")
    assert (free["nfe_factor"], free["factor_standard"], free["difference"]) == (1, 1, 0)
    assert {r["certificate"] for r in tables["capped"].rows if r["rule"] == "threshold"} == {
        "approximate"
    }
    gamma = {row["gamma"]: row for row in tables["gamma"].rows}
    assert gamma[0.05]["drafts_per_round"] < gamma[0.0]["drafts_per_round"]
    top = [row["top_8"] for row in tables["coverage"].rows]
    assert all(row["top_1"] <= row["top_8"] for row in tables["coverage"].rows)
    assert max(top) <= 1


def test_the_same_command_again_makes_nothing_anew_and_logs_to_the_same_run(
    checked: Checked, tracking: Tracking, out: Path, tables: dict[str, Table]
) -> None:
    folders = ("traces", "replay", "order", "scores", "live", "equality")
    before = times(out, *folders)
    assert {path.relative_to(out).parts[0] for path in before} == {*folders}
    again = run_spot(checked, out, "maskahead report spot", tracking)
    assert [table.rows for table in again] == [table.rows for table in tables.values()]
    assert times(out, *folders) == before
    runs = tracking.client.search_runs([tracking.experiment_id])
    assert [run.info.status for run in runs] == ["FINISHED"]
    assert "main/task words/T 0.0/method order/budget 3/nfe_factor" in runs[0].data.metrics
    logged = {file.path for file in tracking.client.list_artifacts(runs[0].info.run_id)}
    assert {"report.md", "main.csv", "main.png", "figures.html"} <= logged


def test_more_problems_go_on_behind_the_recorded_ones(
    checked: Checked, out: Path, tables: dict[str, Table]
) -> None:
    more = checked.config.model_dump()
    more["main"]["problems"] = 3
    del more["what_if"]
    wider = check(validate(SpotConfig, more))
    before = times(out, "traces")
    with ExitStack() as resources:
        report = Report(wider, out, resources)
        record(report)
        replayed = replay(report)
    after = times(out, "traces")
    assert {path: after[path] for path in before} == before
    assert len(after) > len(before)
    assert len(replayed["words-T0-cap1"].tallies[None].problems) == 3


def test_a_target_without_a_tokenizer_is_refused(tiny_folder: Path) -> None:
    config = validate(SpotConfig, {"target": {"path": str(tiny_folder)}})
    with pytest.raises(ValueError, match=r"has no tokenizer; the report's tasks are texts"):
        check(config)


def test_processes_of_their_own_record_what_one_would(
    checked: Checked, tmp_path: Path, tables: dict[str, Table], out: Path
) -> None:
    """Two of them, each with a target of its own; what is recorded already is kept."""
    two = checked.config.model_copy(update={"processes": 2})
    with ExitStack() as resources:
        apart = Report(replace(checked, config=two), tmp_path, resources)
        record(apart)
        assert "runner" not in vars(apart), "this process needs no target"
        stamps = times(tmp_path, "traces")
        record(apart)
        assert times(tmp_path, "traces") == stamps
        alone = Report(checked, out, resources)
        for cell in apart.cells:
            ids = apart.ids(cell)
            one = load_traces(apart.traces(cell), ids)
            other = load_traces(alone.traces(cell), ids)
            assert [t.token_ids for t in one] == [t.token_ids for t in other]
            assert [len(t.blocks) for t in one] == [len(t.blocks) for t in other]
