"""The ladder on a tiny random target: its rungs, its promises, and going on."""

import csv
from pathlib import Path

import pytest

from benchmarks.certificate import Certificate
from benchmarks.ladder import LadderConfig, mean_row, row_of, run_ladder
from benchmarks.paired import Measured, summarize
from cluster.configuration import validate
from tests.text_target import save_text_target, save_tiny_sets_model


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> LadderConfig:
    folder = save_text_target(tmp_path_factory.mktemp("ladder") / "tiny")
    save_tiny_sets_model(folder, folder / "sets")
    values = {
        "target": {"path": str(folder), "dtype": "float64"},
        "problems": 2,
        "decode": {"tau": 0.012, "max_new_tokens": 16},
    }
    return validate(LadderConfig, values)


def test_every_rung_stands_on_those_before_it(config: LadderConfig) -> None:
    options = config.options()
    assert list(options) == [
        "threshold",
        "+ sets and tree",
        "+ gamma",
        "+ boundary",
        "+ product max-commit",
    ]
    last = options["+ product max-commit"]
    assert (last.method, last.budget, last.gamma, last.rule) == ("sets", 8, 0.03, "product")
    assert {each.tau for each in options.values()} == {0.012}


def test_the_report_names_certificates_and_accuracy_and_is_not_measured_twice(
    config: LadderConfig, tmp_path: Path
) -> None:
    table = run_ladder(config, tmp_path, "maskahead report ladder")
    rows = {(row["task"], row["rung"]): row for row in table.rows}
    assert len(rows) == 3 * 5
    for task in ("words", "code"):
        assert rows[task, "threshold"]["nfe_cut"] == 0
        for rung in ("threshold", "+ sets and tree", "+ gamma", "+ boundary"):
            assert rows[task, rung]["certificate"] == "exact"
            assert rows[task, rung]["equal"] == 2
        lossy = rows[task, "+ product max-commit"]
        assert lossy["certificate"] == "approximate"
        assert lossy["accuracy_low"] <= lossy["accuracy"] <= lossy["accuracy_high"]
    assert rows["mean", "+ product max-commit"]["certificate"] == "approximate"
    page = (tmp_path / "report.md").read_text()
    assert "approximate" in page
    assert "n problems" in page
    with (tmp_path / "ladder.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 15
    assert (tmp_path / "ladder-nfe_cut.png").stat().st_size > 1000
    again = run_ladder(config, tmp_path, "maskahead report ladder")
    assert again.rows == table.rows, "read, not measured: even the seconds are the same"


def test_a_text_that_ends_early_is_no_faster_for_it() -> None:
    """Ratios are those of tokens/s, pair by pair, as the report says."""

    def measured(tokens: list[int], seconds: list[list[float]]) -> Measured:
        row = {"nfe": 1, "forwards": 1, "token_ids": [], "rounds": []}
        return Measured([row] * len(tokens), tokens, seconds)

    base = measured([10, 8, 0], [[1.0, 1.0, 1.0], [2.0, 1.0, 1.0]])
    own = measured([5, 8, 0], [[0.5, 0.5, 1.0], [1.0, 0.5, 1.0]])
    found = summarize(own, base, Certificate("approximate", 2))
    assert found["ratio"] == {"median": 1.0, "q25": 1.0, "q75": 1.75}
    assert found["tokens_per_second"] == round(13 / 2.25, 4)


def test_a_mean_is_over_tasks_and_as_exact_as_the_least_of_them() -> None:
    base = {"n": 4, "nfe": 10, "tokens_per_forward": 2.0, "accepted_per_round": 1.0}
    base |= {"tokens_per_second": 5.0, "ratio": {"median": 1.0, "q25": 0.9, "q75": 1.1}}
    base |= {"equal": 4, "certificate": "exact", "right": [True, True, False, True]}
    other = base | {"nfe": 5, "certificate": "differs", "right": [True, False, False, True]}
    rows = [row_of("a", "x", other, base), row_of("b", "x", base, base)]
    assert rows[0]["nfe_cut"] == 0.5
    assert rows[0]["difference"] == -0.25
    found = mean_row("x", rows)
    assert (found["nfe_cut"], found["n"], found["nfe"]) == (0.25, 8, 15)
    assert found["certificate"] == "differs"


@pytest.mark.parametrize(
    ("rungs", "message"),
    [
        ([], "baseline first"),
        ([{"name": "a", "set": {"method": "sets"}}], "method threshold"),
        (
            [
                {"name": "a", "set": {"method": "threshold"}},
                {"name": "b", "set": {"method": "sets", "cap": 0.9}},
            ],
            r"rungs\.b: .*cap is not an option of method sets",
        ),
    ],
)
def test_bad_rungs_are_refused_by_name(rungs: list[dict], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        validate(LadderConfig, {"rungs": rungs})
