"""What a sweep writes and shows, from rows made by hand."""

import csv
import io
import json
from pathlib import Path

import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from cluster.configuration import RunConfig
from serve.config import ServeConfig
from tests.tune.rows import chain, row, standard
from tune.config import SweepConfig
from tune.coordinates import axes_of
from tune.folder import open_folder
from tune.leaderboard import comma_separated, markdown
from tune.plan import Stage
from tune.progress import SweepProgress
from tune.report import pareto_front
from tune.results import Results
from tune.summary import print_outcome
from tune.trial import failed_row

ROWS = [
    row("ref", standard()),
    row("fast", chain(4), speed=2.0, nfe_factor=2.2),
    row("frugal", chain(20), speed=1.2, nfe_factor=3.0),
    row("replayed", chain(5), fidelity="replay", speed=1.9),
    failed_row("broken", "live", chain(6), "GroupError: out of memory"),
    row("slow", chain(32), speed=0.5).model_copy(
        update={"status": "stopped", "error": "0.50 [0.45, 0.55] of standard decoding's tokens/s"}
    ),
]


def results(tmp_path: Path) -> Results:
    config = SweepConfig()
    made = Results(open_folder(tmp_path, "x", False, config), config, "ref")
    for each in ROWS:
        made.add(each)
    return made


def test_best_yaml_is_what_serve_and_decode_take(tmp_path: Path) -> None:
    made = results(tmp_path)
    assert made.champion is not None
    file = made.write_best(made.champion, "run-1")
    values = yaml.safe_load(file.read_text())
    for model in (RunConfig, ServeConfig):
        config = model.model_validate(values)
        assert config.decode == chain(4)
        assert (config.run_id, config.certificate) == ("run-1", "exact")


def test_tables_are_current_after_every_row(tmp_path: Path) -> None:
    made = results(tmp_path)
    sweep = json.loads((made.folder.path / "sweep.json").read_text())
    assert [each["key"] for each in sweep["rows"]] == [each.key for each in ROWS]
    assert sweep["champion"] == "fast"


def test_plots_are_whole_files(tmp_path: Path) -> None:
    made = results(tmp_path)
    made.write_plots()
    for name in ("pareto", "parallel"):
        assert (made.folder.path / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
        html = (made.folder.path / f"{name}.html").read_text()
        assert '<script src="http' not in html, "it opens without a network"
    assert "chain budget=20" in (made.folder.path / "pareto.html").read_text()
    assert not list(made.folder.path.glob(".*partial"))


def test_the_leaderboard_ranks_by_forwards_and_names_the_champion() -> None:
    text = markdown(ROWS, ROWS[1], "maskahead sweep")
    assert text.index("chain budget=20") < text.index("**chain budget=4") < text.index("| standard")
    assert "(champion)" in text
    assert "live: chain budget=6 cap=1 T=0: GroupError: out of memory" in text
    assert "| chain budget=32" not in text, "what was stopped has no finished row"
    stopped = text[text.index("## STOPPED") : text.index("## FAILED")]
    assert "chain budget=32 cap=1 T=0: 0.50 [0.45, 0.55] of standard" in stopped


def test_the_table_of_everything_has_a_line_for_each_trial() -> None:
    lines = list(csv.DictReader(io.StringIO(comma_separated(ROWS, ROWS[1]))))
    keys = ["frugal", "fast", "ref", "replayed", "broken", "slow"]
    assert [line["key"] for line in lines] == keys
    assert [line["status"] for line in lines][-2:] == ["failed", "stopped"]
    assert lines[-2]["error"] == "GroupError: out of memory"
    assert [line["key"] for line in lines if line["champion"] == "True"] == ["fast"]
    assert {line["gamma"] for line in lines} == {"-"}


def test_a_sweep_is_drawn_along_the_knobs_that_differ() -> None:
    plotted = [each for each in ROWS if each.done]
    axes = {axis.title: axis for axis in axes_of(plotted)}
    assert list(axes)[:3] == ["method", "budget", "fidelity"], "one cap, one temperature: no axis"
    budget = axes["budget"]
    assert budget.ticks == ("-", "4", "5", "20"), "a method without the knob has a place too"
    assert [budget.ticks[int(v)] for v in budget.values] == ["-", "4", "20", "5"]
    assert (axes["accuracy"].values, axes["accuracy"].span) == ((1.0,) * 4, (0.0, 1.0))


points = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12)


@given(points)
def test_the_front_is_what_no_point_beats(points: list[tuple[int, int]]) -> None:
    front = [points[i] for i in pareto_front([(float(x), float(y)) for x, y in points])]
    beaten = {p for p in points if any(q != p and q[0] >= p[0] and q[1] >= p[1] for q in points)}
    assert sorted(front) == sorted(set(points) - beaten)
    assert front == sorted(front)


def shown(width: int) -> Console:
    return Console(file=io.StringIO(), width=width, highlight=False)


def text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_end_names_best_store_failures_and_the_next_commands(tmp_path: Path) -> None:
    console = shown(120)
    print_outcome(ROWS, ROWS[1], tmp_path, "sqlite:////x/mlflow.db", console)
    text = text_of(console)
    assert f"maskahead serve --config {tmp_path / 'best.yaml'}" in text
    assert "maskahead ui" in text
    assert "sqlite:////x/mlflow.db" in text
    assert "FAILED live: chain budget=6 cap=1 T=0: GroupError: out of memory" in text
    assert "STOPPED live: chain budget=32 cap=1 T=0: 0.50 [0.45, 0.55]" in text
    assert "* chain budget=4 cap=1 T=0" in text


def test_without_a_terminal_progress_is_plain_lines() -> None:
    console = shown(200)
    stages = [Stage("replay", 4, 10.0), Stage("live", 2, 100.0)]
    with SweepProgress(stages, console) as progress:
        progress.begin("replay")
        progress.found_best("chain x2.00")
        progress.advance("chain budget=4")
        assert progress.seconds_left() >= 100
    last = text_of(console).splitlines()[-1]
    assert last.startswith("replay 1/4 | chain budget=4 | best chain x2.00 | 1 min 40 s left")
