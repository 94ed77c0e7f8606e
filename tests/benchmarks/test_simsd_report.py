"""The whole SimSD report on a tiny random pair: its tables, its words, and going on."""

from pathlib import Path
from shutil import copyfile

import pytest
import torch

from benchmarks.simsd.config import SimsdConfig
from benchmarks.simsd.placement import placement_table
from benchmarks.simsd.run import check, run_simsd
from benchmarks.simsd.stages import runs_as
from benchmarks.spot.found import Table
from cluster.configuration import validate
from models.checkpoint import read_spec, save_checkpoint
from tests.conftest import tiny_model
from tests.text_target import save_text_target

SMALL = {
    "tasks": ["words"],
    "max_new_tokens": 20,
    "problems": 2,
    "sweep_problems": 1,
    "gammas": [2],
    "caps": [0.9],
    "fidelity": {"problems": 1, "layers": [1]},
    "placement": {"problems": 0},
}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> SimsdConfig:
    folder = save_text_target(tmp_path_factory.mktemp("simsd-target") / "tiny")
    small = folder / "drafter"
    save_checkpoint(tiny_model(read_spec(folder), torch.float32, seed=3), small, dtype="float32")
    copyfile(folder / "tokenizer.json", small / "tokenizer.json")
    values = SMALL | {"target": {"path": str(folder), "dtype": "float64"}}
    values |= {"drafter": {"dtype": "float64"}, "pairs": [{"target": str(folder)}]}
    return validate(SimsdConfig, values)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("simsd") / "report"


@pytest.fixture(scope="module")
def tables(config: SimsdConfig, out: Path) -> dict[str, Table]:
    check(config)
    return {table.name: table for table in run_simsd(config, out, "maskahead report simsd")}


def test_the_mask_is_called_approximate_and_exact_states_are_exact(
    tables: dict[str, Table], out: Path
) -> None:
    for name in ("quality", "gamma", "order", "ablation", "temperature", "exact", "pairs"):
        assert tables[name].rows, name
        for row in tables[name].rows:
            exact = row["setting"].startswith("exact cap") or "standard" in row["setting"]
            assert row["certificate"].startswith("exact" if exact else "approximate"), row
    page = (out / "report.md").read_text()
    assert "approximate wherever it stands" in page
    assert "lossless" not in page


def test_one_layer_is_exact_and_more_are_not(tables: dict[str, Table]) -> None:
    first, whole = tables["fidelity"].rows[:2]
    assert (first["layers"], whole["layers"]) == (1, 2)
    assert first["divergence_mean"] < 1e-12 < whole["divergence_mean"]
    assert first["same_argmax"] == 1
    assert first["accepted_masked"] == first["accepted_exact"]


def test_the_same_command_again_decodes_nothing(
    config: SimsdConfig, out: Path, tables: dict[str, Table]
) -> None:
    files = [*(out / "decode").iterdir(), *(out / "fidelity").iterdir()]
    before = {file: file.stat().st_mtime_ns for file in files}
    again = {table.name: table for table in run_simsd(config, out, "maskahead report simsd")}
    assert {file: file.stat().st_mtime_ns for file in files} == before
    assert [again[name].rows for name in tables] == [table.rows for table in tables.values()]


@pytest.mark.parametrize(
    "update", [{"dtype": "float32"}, {"quantize": "int8"}, {"block_size": 2}], ids=str
)
def test_results_of_another_precision_or_block_size_are_not_taken_up(
    config: SimsdConfig, update: dict[str, object]
) -> None:
    """The digest of the checkpoint is the same."""
    target = config.target.model_copy(update=update)
    assert runs_as(config.model_copy(update={"target": target})) != runs_as(config)


def test_a_long_answer_speeds_up_no_pair_but_its_own() -> None:
    """Under the mask texts differ: three pairs alike, one with an answer that never ends."""
    base = {"place": "one", "method": "standard", "texts": {}}
    base |= {"seconds": [[1.0, 1.0, 1.0, 1.0]], "tokens": [10, 10, 10, 10]}
    own = base | {"method": "simsd", "seconds": [[1.0, 1.0, 1.0, 8.0]], "tokens": [10, 10, 10, 80]}
    assert placement_table([base, own]).rows[1]["over one"] == 1


def test_a_pair_or_a_target_that_does_not_fit_is_refused_before_anything_runs(
    config: SimsdConfig,
) -> None:
    nano = config.drafter.model_copy(update={"path": "sdar-nano"})
    with pytest.raises(ValueError, match="blocks of 32, the target of 8"):
        check(config.model_copy(update={"drafter": nano}))
    split = config.target.model_copy(update={"tp": 2})
    with pytest.raises(ValueError, match=r"placement\.tensor_parallel"):
        check(config.model_copy(update={"target": split}))
