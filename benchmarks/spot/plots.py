"""The report's figures: lines read off its tables, drawn for a page (PNG) and a browser (HTML)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import Chart, Line, Panels, save_html, save_png
from benchmarks.spot.found import Row, Table
from cluster.console import plain

HTML = "figures.html"


@dataclass(frozen=True)
class Plot:
    """Columns ``ys`` of a table over column ``x``: a panel for each value of ``panels``, a line for
    each of ``lines`` (and of ``ys``, where there are several)."""

    name: str
    table: str
    x: str
    ys: tuple[str, ...]
    panels: tuple[str, ...]
    lines: tuple[str, ...] = ()
    even: bool = False
    """As :attr:`Chart.even`."""

    def title(self, table: Table) -> str:
        return f"{table.title}: {' and '.join(self.ys)} by {self.x}".replace("_", " ")


PLOTS = (
    Plot("main", "main", "budget", ("nfe_factor",), ("task", "T"), ("method",)),
    Plot("what_if", "main", "budget", ("what_if",), ("task", "T"), ("method",)),
    Plot("live", "live", "budget", ("speed",), ("task", "T"), ("method",)),
    Plot("oracle", "oracle", "budget", ("nfe_factor",), ("task",), ("method",)),
    Plot("coverage", "coverage", "K", ("top_*",), ("task", "T")),
    Plot(
        "order_accuracy", "order_accuracy", "depth", ("order_model", "stale_confidence"), ("task",)
    ),
    Plot("gamma", "gamma", "gamma", ("nfe_factor",), ("task",), ("budget",)),
    Plot("gamma_drafts", "gamma", "gamma", ("drafts_per_round",), ("task",), ("budget",)),
    Plot(
        "temperature",
        "temperature",
        "T",
        ("nfe_factor",),
        ("budget", "task"),
        ("method", "verification"),
    ),
    Plot("acceptance", "acceptance", "depth", ("rate",), ("task", "T"), ("method",)),
    Plot("reliability", "reliability", "predicted", ("accepted",), ("task",), ("T",)),
    Plot(
        "capped",
        "capped",
        "value",
        ("factor_standard",),
        ("budget", "task"),
        ("rule", "method"),
        even=True,
    ),
    Plot("capped_accuracy", "capped", "value", ("accuracy",), ("task",), ("rule",), even=True),
)


def read_panels(plot: Plot, table: Table) -> Panels:
    """The points of a plot; a row without a value makes none, a panel without points is left out.

    A trailing ``*`` in a column's name stands for all columns that begin so.
    """
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    columns = _columns(plot, table)
    for row in sorted(table.rows, key=_by_first_seen(plot.panels + plot.lines, table)):
        for column in columns:
            x, y = row.get(plot.x), row.get(column)
            if x is None or y is None:
                continue
            panel = ", ".join(f"{name} {plain(row[name])}" for name in plot.panels)
            parts = [_told(name, row[name]) for name in plot.lines]
            line = ", ".join(parts + ([column] if len(columns) > 1 else []))
            found.setdefault(panel, {}).setdefault(line, []).append((float(x), float(y)))
    return {
        panel: {line: _unzip(sorted(points)) for line, points in lines.items()}
        for panel, lines in found.items()
    }


def _by_first_seen(names: Sequence[str], table: Table) -> Callable[[Row], list[int]]:
    """Sorts rows so that panels stand beside their like, and lines too; the values of every column
    keep the order of the table."""
    seen = {name: list(dict.fromkeys(row[name] for row in table.rows)) for name in names}
    return lambda row: [seen[name].index(row[name]) for name in names]


def _columns(plot: Plot, table: Table) -> list[str]:
    known = dict.fromkeys(column for row in table.rows for column in row)
    return [
        column
        for y in plot.ys
        for column in known
        if column == y or (y.endswith("*") and column.startswith(y[:-1]))
    ]


def _told(name: str, value: object) -> str:
    return value if isinstance(value, str) else f"{name} {plain(value)}"


def _unzip(points: Sequence[tuple[float, float]]) -> Line:
    return [x for x, _ in points], [y for _, y in points]


def save_plots(tables: Mapping[str, Table], folder: Path) -> dict[str, list[Path]]:
    """Every plot whose table has points, as PNG, and all of them in one HTML page; returns the
    PNG files by table."""
    files: dict[str, list[Path]] = {}
    charts: list[Chart] = []
    for plot in PLOTS:
        table = tables[plot.table]
        panels = read_panels(plot, table)
        path = folder / f"{plot.name}.png"
        if not panels:
            path.unlink(missing_ok=True)
            continue
        charts.append(Chart(plot.title(table), plot.x, panels, plot.even))
        save_png(charts[-1], path)
        files.setdefault(table.name, []).append(path)
    save_html("SPOT", charts, folder / HTML)
    return files
