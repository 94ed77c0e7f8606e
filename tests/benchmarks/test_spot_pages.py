"""Tables as files, as plots, and as metrics."""

import csv
import io
import re
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.figures import Chart, save_html, save_png
from benchmarks.spot.config import SpotConfig
from benchmarks.spot.found import Table
from benchmarks.spot.logbook import metrics
from benchmarks.spot.plots import Plot, read_panels
from benchmarks.spot.scoring import accuracy
from benchmarks.spot.writing import comma_separated, markdown, rows_of
from tasks.intervals import paired_interval, wilson_interval

ROWS = [
    {"task": "words", "method": "order", "budget": 8, "factor": 2.5, "certificate": "exact 4/4"},
    {
        "task": "words",
        "method": "order",
        "budget": 4,
        "factor": 1.0 / 3,
        "certificate": "exact 4/4",
    },
    {"task": "words", "method": "chain", "budget": 4, "factor": None, "live": 1.5},
    {"task": "code", "method": "chain", "budget": 4, "factor": 2.0},
]
TABLE = Table("main", "Main table", ("task", "method", "budget"), ROWS, "What is counted.")
PLOT = Plot("main", "main", "budget", ("factor",), ("task",), ("method",))


def test_csv_keeps_all_digits_and_leaves_missing_values_empty() -> None:
    rows = list(csv.DictReader(io.StringIO(comma_separated(TABLE))))
    assert float(rows[1]["factor"]) == 1 / 3
    assert (rows[2]["factor"], rows[2]["live"], rows[3]["certificate"]) == ("", "1.5", "")


def test_a_page_shows_every_row_with_note_command_and_plot() -> None:
    page = markdown([TABLE], {"main": [Path("main.png")]}, SpotConfig(), {"commit": "abc"}, "cmd x")
    assert "## Main table\n\nWhat is counted.\n\nMade by `cmd x`" in page
    assert "![main](main.png)" in page
    assert "- commit: abc" in page
    assert "| words | order | 4 | 0.3333 | exact 4/4 | - |" in page
    assert "what_if:" in page, "the configuration stands at the end"
    lines = rows_of(TABLE)
    assert len(lines) == 2 + len(ROWS)
    assert len({line.count("|") for line in lines}) == 1


def test_a_table_without_rows_says_so() -> None:
    assert rows_of(Table("live", "Live", (), [], "")) == ["No rows: left out by the configuration."]


def test_panels_hold_the_points_by_rising_x_and_skip_missing_ones() -> None:
    assert read_panels(PLOT, TABLE) == {
        "task words": {"order": ([4.0, 8.0], [1 / 3, 2.5])},
        "task code": {"chain": ([4.0], [2.0])},
    }


def test_a_star_stands_for_all_columns_that_begin_so() -> None:
    table = Table("c", "C", ("K",), [{"K": 1, "top_1": 0.5, "top_8": 0.9, "n": 3}], "")
    assert read_panels(Plot("c", "c", "K", ("top_*",), ()), table) == {
        "": {"top_1": ([1.0], [0.5]), "top_8": ([1.0], [0.9])}
    }


def test_labels_and_panels_keep_the_order_of_the_table_column_by_column() -> None:
    kinds = [("b", "x"), ("a", "x"), ("b", "w"), ("a", "w")]
    table = Table("t", "T", (), [{"n": 1, "y": 2.0, "one": o, "two": t} for o, t in kinds], "")
    panels = read_panels(Plot("t", "t", "n", ("y",), (), ("one", "two")), table)
    assert list(panels[""]) == ["b, x", "b, w", "a, x", "a, w"]


def test_even_places_stand_one_apart_in_every_panel() -> None:
    panels = {"p": {"l": ([0.0, 0.9], [1.0, 2.0])}, "q": {"l": ([0.9, 1.0], [1.0, 2.0])}}
    assert Chart("", "cap", panels, even=True).places == {0.0: 0.0, 0.9: 1.0, 1.0: 2.0}
    assert Chart("", "cap", panels).places == {0.0: 0.0, 0.9: 0.9, 1.0: 1.0}


def test_plots_are_written_as_png_and_as_one_page(tmp_path: Path) -> None:
    chart = Chart("Main", "budget", read_panels(PLOT, TABLE), even=True)
    save_png(chart, tmp_path / "main.png")
    assert (tmp_path / "main.png").read_bytes().startswith(b"\x89PNG")
    save_html("SPOT", [chart, replace(chart, title="Again", even=False)], tmp_path / "f.html")
    page = (tmp_path / "f.html").read_text()
    assert page.count("Plotly.newPlot") >= 2
    assert "Main" in page
    assert "Again" in page
    assert {path.name for path in tmp_path.iterdir()} == {"main.png", "f.html"}


def test_metrics_name_every_number_of_every_row() -> None:
    found = metrics(TABLE)
    assert found["main/task words/method order/budget 8/factor"] == 2.5
    assert len(found) == 4
    assert all(re.fullmatch(r"[\w\-. /]+", name) for name in found)


def test_accuracy_has_its_interval_and_its_paired_difference() -> None:
    reference = {"a": True, "b": False, "c": True, "d": True}
    found = accuracy({"a": True, "b": True, "c": False}, reference)
    assert (found.n, found.right, found.share) == (3, 2, 2 / 3)
    assert (found.low, found.high) == wilson_interval(2, 3)
    assert found.difference == 0
    paired = paired_interval([True, True, False], [True, False, True])
    assert (found.difference_low, found.difference_high) == pytest.approx(paired)
