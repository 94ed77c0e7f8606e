"""What fits where, and what is refused before it is loaded."""

import json
from pathlib import Path
from typing import Any

import pytest

from models.checkpoint import save_checkpoint
from models.config import TargetConfig
from models.describe import describe_target
from models.devices import Device
from models.families.registry import FAMILIES
from models.fitting import check_room, fit_rows
from models.footprint import cache_bytes, need
from models.loading import load_model
from models.ranks import Ranks
from models.spec import TargetSpec
from tests.conftest import tiny_model, tiny_spec
from tests.reference.published import PUBLISHED

GB = 10**9
LARGE = PUBLISHED["SDAR-30B-A3B"]


def cpu(free: float) -> Device:
    return Device("cpu", "CPU", int(free * GB), 256 * GB)


def gpu(free: float, number: int = 0) -> Device:
    return Device(f"cuda:{number}", "a GPU", int(free * GB), 141 * GB)


def config(**values: Any) -> TargetConfig:
    return TargetConfig.model_validate({"path": "sdar-30b"} | values)


@pytest.mark.parametrize(
    ("device", "values", "message"),
    [
        (
            gpu(100),
            {"dtype": "bfloat16", "device": "cuda"},
            None,
        ),
        (
            gpu(80),
            {"device": "cuda"},
            r"does not fit on cuda:0 with target\.dtype float32 and target\.tp 1: a rank needs "
            r"12\d\.\d GB \(weights 122\.1 GB, .*\), and 80\.0 GB of 141\.0 GB are free; what "
            r"would fit: target\.dtype float32 with target\.tp 2 \(6\d\.\d GB a rank\); "
            r"target\.dtype bfloat16 with target\.tp 1 \(6\d\.\d GB a rank\); .*force_fit true ",
        ),
        (
            gpu(40),
            {"dtype": "bfloat16"},
            r"what would fit: .*; target\.dtype bfloat16 with target\.tp 2 ",
        ),
        (
            gpu(9),
            {},
            r"nothing would: even target\.dtype bfloat16 with target\.tp 4 needs 15\.\d GB a",
        ),
        (cpu(70), {}, r"what would fit: target\.dtype bfloat16 with target\.tp 1 \(61"),
        (
            cpu(40),
            {},
            r"nothing would: even target\.dtype bfloat16 with target\.tp 1 needs 61\.\d GB",
        ),
        (cpu(40), {"force_fit": True}, None),
    ],
)
def test_what_does_not_fit_is_refused_with_the_numbers_and_what_would(
    device: Device, values: dict[str, Any], message: str | None
) -> None:
    if message is None:
        check_room(LARGE, config(**values), device)
        return
    with pytest.raises(ValueError, match=message):
        check_room(LARGE, config(**values), device)


def test_ranks_share_the_host_and_have_a_gpu_each() -> None:
    asked = config(dtype="bfloat16", tp=2)
    check_room(LARGE, asked, gpu(40))
    check_room(LARGE, asked, cpu(40))
    with pytest.raises(ValueError, match=r"2 ranks need, each, 3\d\.\d GB"):
        check_room(LARGE, asked, cpu(40), together=2)


def test_the_edge_is_what_is_needed() -> None:
    asked = need(LARGE, "bfloat16").total
    device = Device("cpu", "CPU", asked, asked)
    check_room(LARGE, config(dtype="bfloat16"), device)
    with pytest.raises(ValueError, match="does not fit"):
        check_room(LARGE, config(dtype="bfloat16"), Device("cpu", "CPU", asked - 1, asked))


def empty_checkpoint(spec: TargetSpec, folder: Path) -> Path:
    """Configurations without any weights: whoever reads these fails."""
    written, generation = FAMILIES[spec.family].write_config(spec, "bfloat16")
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(written))
    (folder / "generation_config.json").write_text(json.dumps(generation))
    return folder


def test_loading_is_refused_before_a_weight_is_looked_for(tmp_path: Path) -> None:
    folder = empty_checkpoint(LARGE.model_copy(update={"num_layers": 48_000}), tmp_path / "large")
    with pytest.raises(ValueError, match=r"large' does not fit on cpu .*nothing would"):
        load_model(TargetConfig(path=str(folder)))
    ranks = Ranks(1, 2, control=None)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"target\.tp 2: a rank needs"):
        load_model(TargetConfig(path=str(folder), tp=2), ranks)


def test_a_checkpoint_is_described_before_its_weights_are_there(tmp_path: Path) -> None:
    spec, facts = describe_target(str(empty_checkpoint(tiny_spec(), tmp_path / "small")))
    assert spec == tiny_spec()
    assert facts["memory_bytes"]["float32"] == 4 * tiny_spec().num_parameters
    assert (facts["dtype_on_disk"], facts["bytes_on_disk"]) == (None, 0)


def test_the_user_may_load_what_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_checkpoint(tiny_model(), tmp_path)
    monkeypatch.setattr("models.devices.host_memory", lambda: (1000, 2000))
    with pytest.raises(ValueError, match=r"and 1\.0 kB of 2\.0 kB are free"):
        load_model(TargetConfig(path=str(tmp_path)))
    assert load_model(TargetConfig(path=str(tmp_path), force_fit=True)).spec == tiny_spec()


def test_the_table_says_where_every_dtype_and_number_of_ranks_fits() -> None:
    rows = fit_rows(LARGE, [cpu(70), gpu(130), gpu(65, 1), gpu(20, 2)], budgets=(0, 8, 256))
    assert [(row["dtype"], row["tp"]) for row in rows if row["dtype"] != "float64"] == [
        (dtype, tp) for dtype in ("float32", "bfloat16") for tp in (1, 2, 4)
    ]
    by_setting = {(row["dtype"], row["tp"]): row for row in rows}
    whole = by_setting["bfloat16", 1]
    assert whole["weights"] == "61.1 GB"
    assert whole["1k tokens"] == "98.3 MB"
    host, gpus = (key for key in whole if "free" in key)
    assert (host, gpus) == ("cpu, 70.0 GB free", "3 cuda, 130.0 GB, 65.0 GB, 20.0 GB free")
    assert whole[host].startswith("yes, ")
    assert by_setting["float32", 1][host] == "no"
    assert by_setting["float32", 1][gpus].startswith("yes, ")
    assert by_setting["float32", 2][gpus].startswith("yes, ")
    assert by_setting["bfloat16", 4][gpus] == "no: 4 GPUs"
    assert by_setting["float64", 1][gpus] == "no"


def test_a_table_without_gpus_has_no_column_for_them() -> None:
    (row, *_) = fit_rows(tiny_spec(), [cpu(1)], budgets=(0,))
    assert [key for key in row if "free" in key] == ["cpu, 1.0 GB free"]


def test_the_tokens_that_fit_are_what_is_left_by_weights_and_forward() -> None:
    asked = need(tiny_spec(), "float32")
    device = Device("cpu", "CPU", asked.total + 500 * cache_bytes(tiny_spec(), "float32"), GB)
    row = fit_rows(tiny_spec(), [device], budgets=(0,))[0]
    assert list(row.values())[-1] == "yes, 4,596 tokens"


def test_a_dense_target_may_fit_in_int8(tmp_path: Path) -> None:
    dense = PUBLISHED["SDAR-8B"]
    message = r"target\.dtype bfloat16 and target\.quantize int8 with target\.tp 1 \(\d\.\d GB"
    with pytest.raises(ValueError, match=message):
        check_room(dense, config(dtype="bfloat16"), gpu(12))
    check_room(dense, config(dtype="bfloat16", quantize="int8"), gpu(12))
    rows = {(row["dtype"], row["tp"]): row for row in fit_rows(dense, [cpu(12)], (0,))}
    assert rows["bfloat16, int8", 1]["cpu, 12.0 GB free"].startswith("yes")
    assert rows["bfloat16", 1]["cpu, 12.0 GB free"] == "no"
