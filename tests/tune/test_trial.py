"""What becomes of a trial that cannot be measured, and what a trial's process has to load."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from actors.lease_desk import NoGroupLeft
from actors.target_group import GroupGone
from actors.target_rank import GroupError
from tests.tune.rows import chain
from tune.config import SweepConfig
from tune.cost import KNOTS, CostCurve
from tune.folder import open_folder
from tune.row import TrialRow
from tune.trial import RowTrial, TrialJob, failed_row

ROOT = Path(__file__).parents[2]
COST = CostCurve(forward=tuple(0.01 * k for k in KNOTS))


def outcome(tmp_path: Path, error: Exception) -> TrialRow:
    """The row of a live trial whose measuring raises ``error``."""

    class Broken(RowTrial):
        fidelity = "live"

        def measure(self, key: str) -> TrialRow:
            with self.limited(key):
                raise error

    job = TrialJob(SweepConfig(), tmp_path / "trials", {"drafter": None}, {}, COST)
    trial = Broken.__new__(Broken)  # Tune's own part needs Tune
    trial.setup({"method": "chain", "budget": 4}, job)
    key = trial.step()["key"]
    row = job.rows.find(key)
    assert row is not None
    return row


def test_a_setting_that_runs_out_of_memory_is_a_failed_row_with_its_reason(tmp_path: Path) -> None:
    reason = "target group t was rebuilt and failed again: OutOfMemoryError: tried 20 GiB"
    row = outcome(tmp_path, GroupError(reason))
    assert (row.status, row.lost) == ("failed", False)
    assert row.error == f"GroupError: {reason}"
    assert row.started > 0


def test_a_setting_without_a_place_is_tried_again_by_a_resumed_sweep(tmp_path: Path) -> None:
    row = outcome(tmp_path, NoGroupLeft("no target group is left: no node had room"))
    assert (row.status, row.lost) == ("failed", True)
    folder = open_folder(tmp_path, "x", False, SweepConfig())
    folder.rows.write(row)
    folder.rows.write(failed_row("memory", "live", chain(6), "GroupError: out of memory"))
    again = open_folder(tmp_path, "x", True, SweepConfig())
    again.rows.forget_lost()
    assert [row.key for row in again.rows.all()] == ["memory"]


def test_a_trial_whose_group_cannot_be_let_go_of_ends_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()
    monkeypatch.setattr("os._exit", lambda code: ended.set())
    monkeypatch.setattr("threading.excepthook", lambda told: None)

    class Stuck(RowTrial):
        fidelity = "live"

        def give_up(self) -> None:
            raise GroupGone("its keeper is lost")

        def measure(self, key: str) -> TrialRow:
            with self.limited(key):
                ended.wait(20)
            raise ValueError("its process went on")

    config = SweepConfig(trial_seconds=0.01)
    trial = Stuck.__new__(Stuck)
    trial.setup({"method": "chain"}, TrialJob(config, tmp_path, {"drafter": None}, {}, COST))
    trial.step()
    assert ended.is_set()


def test_a_sweep_may_be_resumed_on_another_cluster(tmp_path: Path) -> None:
    open_folder(tmp_path, "x", False, SweepConfig())
    elsewhere = {"cluster": {"address": "auto"}, "pool": {"groups": 4}}
    open_folder(tmp_path, "x", True, SweepConfig.model_validate(elsewhere))
    with pytest.raises(ValueError, match="is a sweep with seed 0, not 5"):
        open_folder(tmp_path, "x", True, SweepConfig(seed=5))


def test_the_process_of_a_live_trial_loads_no_torch() -> None:
    code = "import sys, tune.trial, tune.live; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
