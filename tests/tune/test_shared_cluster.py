"""Two programs on one cluster: a sweep waits its turn with a message, and then runs."""

import threading
import time
from pathlib import Path

import pytest

from actors.target_pool import PoolConfig, TargetPool
from tune.config import LiveConfig, ReplayConfig, SweepConfig
from tune.space_config import SpaceConfig
from tune.sweep import run_sweep

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.mark.usefixtures("ray_cluster")
def test_a_sweep_waits_with_a_message_until_another_ones_place_is_free(
    sweep_config: SweepConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    config = sweep_config.model_copy(
        update={
            "space": SpaceConfig(methods=("chain",), cap=(1.0,)),
            "replay": ReplayConfig(trials=0),
            "live": LiveConfig(trials=0, repeats=1),
            "pool": PoolConfig(cpus_per_rank=3),
        }
    )
    holds = threading.Event()

    def hold() -> None:
        """Another program, which ends once somebody has waited for a while."""
        taken = PoolConfig(cpus_per_rank=2)
        with TargetPool.open(config.target, config.drafter, (), taken, print) as pool:
            holds.set()
            while not pool.others_wait():
                time.sleep(0.1)
            time.sleep(6)

    other = threading.Thread(target=hold)
    other.start()
    assert holds.wait(120)
    outcome = run_sweep(config, "second", False, False, "maskahead sweep")
    other.join()
    told = capsys.readouterr().err
    assert "no node had room for 1 ranks of 3 CPUs each" in told
    assert "others hold it; waiting up to" in told
    assert [row.status for row in outcome.rows] == ["done", "done"], "replayed and live"
