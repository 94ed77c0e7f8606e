"""All parts of the GPU's measurement run at toy size on a CPU, and say what they measured."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from benchmarks.gpu.__main__ import main
from benchmarks.gpu.floors import Speeds
from benchmarks.gpu.forwards import ONE_COPY, curve_of, judged, one_copy_seconds
from benchmarks.gpu.parts import Session, prices_of, ranks_part
from benchmarks.gpu.plan import GpuPlan

TOY = GpuPlan(
    size="toy", device="cpu", dtype="float32", block=4, copies=(1, 3), prefixes=(0, 8), repeats=1
)
SPREAD = {"median": 2.0, "q25": 1.0, "q75": 3.0}


def command(*arguments: str) -> Any:
    app = typer.Typer()
    app.command()(main)
    return CliRunner().invoke(app, arguments)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("gpu") / "toy.json"
    found = command(
        *("--size", "toy", "--device", "cpu", "--dtype", "float32", "--block", "4"),
        *("--copies", "1,3", "--prefixes", "0,8", "--repeats", "1", "--problems", "1"),
        *("--budgets", "2", "--max-new-tokens", "6", "--out", str(out)),
        *("--parts", "forwards,shares,equality,syncs,drafting,what-if"),
    )
    assert found.exit_code == 0, found.output
    assert "forwards" in found.output
    return json.loads(Path(out).read_text())


def test_the_report_says_on_what_it_was_measured(report: dict[str, Any]) -> None:
    assert {"command", "commit", "machine", "versions", "plan", "speeds"} <= report.keys()
    assert report["plan"]["size"] == "toy"


def test_every_size_stands_beside_its_floors_in_every_mode(report: dict[str, Any]) -> None:
    rows = report["parts"]["forwards"]
    sizes = [(row["mode"], row["prefix"], row["copies"]) for row in rows]
    assert sizes == [(m, p, c) for m in ("plain", "buckets") for p in (0, 8) for c in (1, 3)]
    for row in rows:
        assert 0 < row["seconds"]["q25"] <= row["seconds"]["median"] <= row["seconds"]["q75"]
        assert row["met"] == (row["ratio"] <= row["goal"])


def test_shares_are_of_the_whole(report: dict[str, Any]) -> None:
    for row in report["parts"]["shares"]:
        assert all(row[name] >= 0 for name in ("attention", "mlp", "head", "rest"))
        assert row["attention"] < 1


def test_what_a_cpu_cannot_show_is_left_out(report: dict[str, Any]) -> None:
    assert report["parts"]["syncs"] == []


def test_outputs_are_compared_and_rounds_replayed(report: dict[str, Any]) -> None:
    assert all(row["equal"] == row["n"] for row in report["parts"]["equality"]), "fp32 is exact"
    rows = report["parts"]["what-if"]
    assert {row["certificate"] for row in rows} == {"replayed"}
    assert all("measured on this CPU" in row["prices"] for row in rows)
    by_method = {(r["method"], r["cap"]): r for r in rows}
    for (method, cap), row in by_method.items():
        if method == "oracle-position":
            assert row["nfe"] <= by_method["standard", cap]["nfe"]
    assert {row["proposer"] for row in report["parts"]["drafting"]} >= {"chain cpu", "order cpu"}


def test_without_a_measurement_prices_are_stated_in_words() -> None:
    prices = prices_of(Session(TOY))
    assert "assumed, not measured" in prices.words
    assert prices.forward.at(1) == 1.0


def rows_of(medians: dict[tuple[int, int], float]) -> list[dict[str, Any]]:
    return [
        {"mode": "graphs", "prefix": prefix, "copies": copies, "seconds": SPREAD | {"median": s}}
        for (prefix, copies), s in medians.items()
    ]


def test_the_curve_of_measured_forwards_never_falls() -> None:
    rows = rows_of({(0, 1): 3.0, (0, 5): 2.0, (1024, 1): 2.5, (1024, 5): 4.0})
    curve = curve_of(rows, "graphs")
    assert curve.knots == (1, 5)
    assert curve.prefixes == (0, 1024)
    assert curve.seconds == ((3.0, 3.0), (3.0, 4.0))
    assert one_copy_seconds(rows, "graphs", 900) == 2.5


@pytest.mark.parametrize(
    ("copies", "median", "to", "met"),
    [
        (1, ONE_COPY * 0.99, "memory floor", True),
        (1, ONE_COPY * 1.01, "memory floor", False),
        (32, 1.14, "one copy", True),
        (32, 1.16, "one copy", False),
        (1000, 1.2, "larger floor", True),
    ],
)
def test_each_size_has_its_goal(copies: int, median: float, to: str, met: bool) -> None:
    spec, item = TOY.spec, 4
    from benchmarks.gpu.floors import forward_bytes

    moved = forward_bytes(spec, 0, item)
    speeds = Speeds(float(moved), 1e15)  # the memory floor is one second
    facts = {"copies": copies, "prefix": 0, "rows": copies}
    row = judged(TOY, spec, speeds, facts, SPREAD | {"median": median}, one=1.0)
    assert row["memory_floor"] == pytest.approx(1.0)
    assert (row["ratio_to"], row["met"]) == (to, met)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--size", "huge"), "choose from"),
        (("--parts", "forwards,flops"), "choose from forwards"),
        (("--copies", "2,4", "--device", "cpu"), "must begin with 1"),
        (("--device", "tpu"), "valid are cpu, cuda and cuda:N"),
    ],
)
def test_bad_input_is_named(arguments: tuple[str, ...], told: str, tmp_path: Path) -> None:
    found = command(*arguments, "--out", str(tmp_path / "out.json"))
    assert found.exit_code == 2
    assert told in " ".join(found.output.replace("│", " ").split())


@pytest.mark.slow
def test_two_ranks_measure_what_one_does() -> None:
    rows = ranks_part(Session(TOY.model_copy(update={"bandwidth": 1e9, "peak": 1e9})), print)
    assert {row["mode"] for row in rows} == {"plain", "buckets"}
    assert len(rows) == 8
