"""The report's figures: lines read off its tables, drawn for a page (PNG) and a browser (HTML)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.spot.found import Table
from cluster.console import plain
from tasks.whole import write_whole

HTML = "figures.html"
MARKERS = ("o", "s", "^")
COLUMNS = 2
"""Panels side by side."""


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
        ("task",),
        ("method", "budget", "verification"),
    ),
    Plot("acceptance", "acceptance", "depth", ("rate",), ("task", "T"), ("method",)),
    Plot("reliability", "reliability", "predicted", ("accepted",), ("task",), ("T",)),
    Plot(
        "capped", "capped", "value", ("factor_standard",), ("task",), ("rule", "method", "budget")
    ),
    Plot("capped_accuracy", "capped", "value", ("accuracy",), ("task",), ("rule",)),
)

Line = tuple[list[float], list[float]]
Panels = dict[str, dict[str, Line]]
"""Panel to line to its points, by rising x."""


def read_panels(plot: Plot, table: Table) -> Panels:
    """The points of a plot; a row without a value makes none, a panel without points is left out.

    A trailing ``*`` in a column's name stands for all columns that begin so.
    """
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    columns = _columns(plot, table)
    for row in table.rows:
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


def save_png(title: str, x: str, panels: Panels, path: Path) -> None:
    """One figure, for a page."""
    from matplotlib import colormaps
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = math.ceil(len(panels) / COLUMNS)
    figure = Figure(figsize=(11, 0.6 + 3.6 * rows), layout="constrained")
    grid = figure.subplots(rows, COLUMNS, squeeze=False).flatten()
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    for axes, (panel, lines) in zip(grid, panels.items(), strict=False):
        # Of the usual ten colours an eleventh line would be taken for the first.
        colours = colormaps["tab10" if len(lines) <= 10 else "tab20"]
        for index, (label, (xs, ys)) in enumerate(lines.items()):
            shape = MARKERS[index // colours.N % len(MARKERS)]
            colour = colours(index % colours.N)
            axes.plot(xs, ys, marker=shape, markersize=3, color=colour, label=label or None)
        axes.set(title=panel, xlabel=x)
        axes.grid(alpha=0.3)
        if any(lines):
            axes.legend(fontsize=7)
    figure.suptitle(title)
    partial = path.with_name(f".{path.name}.partial")
    FigureCanvasAgg(figure).print_png(str(partial))
    partial.replace(path)


def save_html(figures: Mapping[str, tuple[str, Panels]], path: Path) -> None:
    """All figures in one page that needs nothing else: title to (name of x, panels)."""
    from plotly.colors import qualitative
    from plotly.graph_objects import Figure, Scatter
    from plotly.subplots import make_subplots

    parts: list[str] = []
    for title, (x, panels) in figures.items():
        rows = math.ceil(len(panels) / COLUMNS)
        figure: Figure = make_subplots(rows, COLUMNS, subplot_titles=list(panels))
        labels = list(dict.fromkeys(label for lines in panels.values() for label in lines))
        palette = qualitative.Plotly if len(labels) <= 10 else qualitative.Dark24
        shown: set[str] = set()
        for index, lines in enumerate(panels.values()):
            row, column = divmod(index, COLUMNS)
            for label, (xs, ys) in lines.items():
                line = Scatter(
                    x=xs,
                    y=ys,
                    mode="lines+markers",
                    name=label,
                    legendgroup=label,
                    showlegend=label not in shown,
                    marker_color=palette[labels.index(label) % len(palette)],
                )
                shown.add(label)
                figure.add_trace(line, row + 1, column + 1)
            figure.update_xaxes(title_text=x, row=row + 1, col=column + 1)
        figure.update_layout(title=title, height=140 + 320 * rows)
        parts.append(figure.to_html(full_html=False, include_plotlyjs=not parts))
    body = "\n".join(parts)
    write_whole(path, f'<!doctype html>\n<meta charset="utf-8">\n<title>SPOT</title>\n{body}\n')


def save_plots(tables: Mapping[str, Table], folder: Path) -> dict[str, list[Path]]:
    """Every plot whose table has points, as PNG, and all of them in one HTML page; returns the
    PNG files by table."""
    files: dict[str, list[Path]] = {}
    figures: dict[str, tuple[str, Panels]] = {}
    for plot in PLOTS:
        table = tables[plot.table]
        panels = read_panels(plot, table)
        path = folder / f"{plot.name}.png"
        if not panels:
            path.unlink(missing_ok=True)
            continue
        title = plot.title(table)
        figures[title] = plot.x, panels
        save_png(title, plot.x, panels, path)
        files.setdefault(table.name, []).append(path)
    save_html(figures, folder / HTML)
    return files
