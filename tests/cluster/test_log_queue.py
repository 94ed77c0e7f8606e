"""A tracking store that goes away in the middle of some work, and comes back or does not."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster import log_queue
from cluster.log_queue import LogQueue
from cluster.tracking import DataSource, Tracking
from tests.tune.rows import chain, row, standard
from tune.logbook import Logbook
from tune.trial import failed_row

ROWS = [row("a", standard()), row("b", chain(2)), row("c", chain(4))]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("away")


@pytest.fixture(scope="module")
def tracking(store: Path) -> Tracking:
    return Tracking(f"sqlite:///{store}/mlflow.db", store / "artifacts")


@contextmanager
def away(store: Path, table: str = "runs") -> Iterator[None]:
    """The store answers nothing but errors where it needs ``table``."""
    with sqlite3.connect(store / "mlflow.db") as database:
        database.execute(f"ALTER TABLE {table} RENAME TO gone")
    yield
    with sqlite3.connect(store / "mlflow.db") as database:
        database.execute(f"ALTER TABLE gone RENAME TO {table}")


@pytest.mark.parametrize("table", ["runs", "params"], ids=["before a run", "in the middle of one"])
def test_rows_wait_for_a_store_that_is_away_and_come_in_once_each(
    store: Path, tracking: Tracking, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    monkeypatch.setattr(log_queue, "RETRY_SECONDS", 0.0)
    told: list[str] = []
    logbook = Logbook(tracking, table, "runs/one", "tiny", DataSource("heldout", "1", "{}"))
    queue = LogQueue(logbook.log, told.append, "trials", "--resume")
    queue.add(ROWS[0])
    with away(store, table):
        queue.add(ROWS[1])
        assert "1 trials wait for it" in told[-1]
        with pytest.raises(
            RuntimeError, match=r"1 trials are not in the tracking store .*--resume"
        ):
            queue.flush()
    queue.add(ROWS[2])
    queue.flush()
    children = tracking.children(logbook.parent)
    assert {key: status for key, (_, status) in children.items()} == {
        each.key: "FINISHED" for each in ROWS
    }
    assert len(tracking.trials(logbook.parent)) == len(ROWS)


def test_a_trial_that_fails_again_has_a_run_of_its_own_with_the_new_reason(
    tracking: Tracking,
) -> None:
    first = failed_row("d", "live", chain(6), "no target group is left")
    second = first.model_copy(update={"error": "out of memory", "started": first.started + 60})
    for row_of_this_try in (first, first, second, second):  # as resumed sweeps hand them over
        logbook = Logbook(tracking, "again", "runs/two", "tiny", DataSource("heldout", "1", "{}"))
        logbook.log(row_of_this_try)
        logbook.log(row_of_this_try)
    told = [run.tags["error"] for run in tracking.trials(logbook.parent)]
    assert told == ["out of memory", "no target group is left"], "the latest first, each once"
    assert tracking.get(logbook.run_of(second)).tags["error"] == "out of memory"
