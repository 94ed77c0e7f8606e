"""What the benchmark of ``budget: auto`` computes from pairs of runs."""

from pathlib import Path

import numpy as np
import pytest

from actors.loading import open_engine
from actors.runner import engine_runner
from benchmarks.auto_promise import (
    AUTO,
    ORACLE,
    measure_cell,
    median_interval,
    settings_of,
    table_rows,
)
from decoders.options import DecodeOptions
from decoders.prompts import PromptRow
from drafters.config import DrafterConfig
from models.config import TargetConfig


def test_the_interval_holds_the_median_and_narrows_with_more_batches() -> None:
    draw = np.random.default_rng(1)
    few, many = (draw.lognormal(0.3, 0.2, (2, count)) for count in (8, 200))
    widths = []
    for ratios in (few, many):
        median, low, high = median_interval(ratios)
        assert median == pytest.approx(float(np.median(ratios)))
        assert low <= median <= high
        widths.append(high - low)
    assert widths[1] < widths[0] / 2
    assert median_interval(np.full((2, 5), 1.2)) == (1.2, 1.2, 1.2)


def test_batches_are_resampled_whole() -> None:
    """One batch repeated tells nothing new: its repeats do not narrow the interval."""
    ratios = np.random.default_rng(2).lognormal(0, 0.3, (1, 9))
    assert median_interval(np.repeat(ratios, 6, axis=0)) == median_interval(ratios)


def test_only_the_order_models_fixed_settings_have_a_floor() -> None:
    labels = [s.label for s in settings_of(["chain", "order"], [4, 8], 0.03)]
    assert labels == [
        "chain auto",
        "chain 4",
        "chain 8",
        "order auto",
        "order 4 gamma 0.03",
        "order 8 gamma 0.03",
    ]


def test_a_cell_says_what_the_promise_names(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASKAHEAD_CACHE", str(tmp_path))
    config = TargetConfig.model_validate({"path": str(tiny_folder), "dtype": "float64"})
    engine = open_engine(config, DrafterConfig(), ["chain", ORACLE])
    rows = [PromptRow(id=str(i), prompt_ids=(5, 6, 7 + i)) for i in range(3)]
    settings = settings_of(["chain"], [2], 0.0)
    rule = DecodeOptions(cap=0.9, max_new_tokens=12, ignore_stop=True, batch_size=2)
    found = measure_cell(
        engine, engine_runner(engine, "cpu"), rows, rule, settings, 1, lambda n, of: None
    )
    auto, fixed = found
    assert (auto["setting"], fixed["setting"]) == (f"chain {AUTO}", "chain 2")
    assert auto["best_fixed"] in ("standard", "chain 2")
    assert {row["certificate"] for row in found} == {"exact 3/3"}
    assert auto["expected_steps"] >= 1 <= auto["measured_steps"]
    assert auto["oracle_allows"] > 0
    for row in found:
        assert row["low"] <= row["speed"] <= row["high"]
    [shown] = table_rows([{"task": "t", "batch": 2, "T": 0.0, "cap": 0.9} | row for row in found])
    assert shown["setting"] == f"chain {AUTO}"
