"""Other families than SDAR through a whole sweep, and its best setting on Ray Serve."""

import socket
from pathlib import Path

import openai
import pytest

from models.config import TargetConfig
from serve.config import load_serve_config
from serve.running import serving
from tests.family_text import save_family_target
from tune.config import LiveConfig, ReplayConfig, SweepConfig, TasksConfig
from tune.space_config import Range, SpaceConfig
from tune.sweep import run_sweep

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("family", ["Dream", "llada2_moe"])
def test_a_family_is_swept_and_its_best_setting_served(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    folder = save_family_target(tmp_path / "targets" / family, family)
    config = SweepConfig(
        target=TargetConfig(path=str(folder), dtype="float64"),
        decode={"max_new_tokens": 12},
        tasks=TasksConfig(names=("words",), recorded=2, live=1),
        space=SpaceConfig(methods=("chain",), budget=Range(least=2, most=6), cap=(1.0,)),
        replay=ReplayConfig(trials=2, concurrency=1),
        live=LiveConfig(trials=1, repeats=1),
    )
    outcome = run_sweep(config, family, False, False, "maskahead sweep")
    drafted = [row for row in outcome.rows if row.options.drafts]
    assert {row.fidelity for row in drafted} == {"replay", "live"}
    live = [row for row in drafted if row.fidelity == "live"]
    assert [row.certificate for row in live] == ["exact"] * len(live)
    assert outcome.folder is not None
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    served = load_serve_config(outcome.folder / "best.yaml")
    with serving(served, "127.0.0.1", port) as url:
        client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
        answer = client.chat.completions.create(
            model=family, messages=[{"role": "user", "content": "how many?"}], seed=1
        )
    assert answer.usage is not None
    assert 0 <= answer.usage.completion_tokens <= 12
