"""Lines over lines, drawn for a page (PNG) and for a browser (HTML)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.whole import write_whole

MARKERS = ("o", "s", "^")
COLUMNS = 2
"""Panels side by side."""

Line = tuple[list[float], list[float]]
Panels = dict[str, dict[str, Line]]
"""Panel to line to its points, by rising x."""


@dataclass(frozen=True)
class Chart:
    """Panels under one title, with one legend: a label has the same colour in every panel."""

    title: str
    x: str
    panels: Panels
    even: bool = False
    """Whether the values of x stand at even distances, as those do that crowd at one end."""
    from_zero: bool = False
    """Whether y begins at 0, so that heights can be compared."""

    @property
    def labels(self) -> list[str]:
        return list(dict.fromkeys(label for lines in self.panels.values() for label in lines))

    @property
    def places(self) -> dict[float, float]:
        """Where a value of x stands."""
        values = sorted(
            {x for lines in self.panels.values() for xs, _ in lines.values() for x in xs}
        )
        return {x: float(index) if self.even else x for index, x in enumerate(values)}


def styles(labels: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Colour and marker by label. More than ten come in pairs of a dark and a light tone, so that
    labels which follow each other look akin."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    palette = colormaps["tab10" if len(labels) <= 10 else "tab20"]
    return {
        label: (to_hex(palette(index % palette.N)), MARKERS[index // palette.N % len(MARKERS)])
        for index, label in enumerate(labels)
    }


def save_png(chart: Chart, path: Path) -> None:
    """One figure, for a page; its legend stands beside the panels, where it hides no point."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = math.ceil(len(chart.panels) / COLUMNS)
    figure = Figure(figsize=(11, 0.6 + 3.6 * rows), layout="constrained")
    grid = figure.subplots(rows, COLUMNS, squeeze=False).flatten()
    for axes in grid[len(chart.panels) :]:
        axes.set_axis_off()
    places, looks = chart.places, styles(chart.labels)
    drawn = {}
    for axes, (panel, lines) in zip(grid, chart.panels.items(), strict=False):
        for label, (xs, ys) in lines.items():
            colour, marker = looks[label]
            points = [places[x] for x in xs], ys
            (drawn[label],) = axes.plot(*points, marker=marker, markersize=3, color=colour)
        axes.set(title=panel, xlabel=chart.x)
        if chart.even:
            axes.set_xticks(list(places.values()), [f"{x:g}" for x in places])
        if chart.from_zero:
            top = max((y for _, ys in lines.values() for y in ys), default=0)
            axes.set_ylim(0, 1.05 * top or 1)
        axes.grid(alpha=0.3)
    if any(drawn):
        named = [label for label in chart.labels if label]
        figure.legend(
            [drawn[label] for label in named], named, fontsize=8, loc="outside right upper"
        )
    figure.suptitle(chart.title)
    partial = path.with_name(f".{path.name}.partial")
    FigureCanvasAgg(figure).print_png(str(partial))
    partial.replace(path)


def save_html(name: str, charts: Sequence[Chart], path: Path) -> None:
    """All charts in one page, called ``name``, that needs nothing else."""
    from plotly.graph_objects import Figure, Scatter
    from plotly.subplots import make_subplots

    parts: list[str] = []
    for chart in charts:
        rows = math.ceil(len(chart.panels) / COLUMNS)
        figure: Figure = make_subplots(rows, COLUMNS, subplot_titles=list(chart.panels))
        places, looks = chart.places, styles(chart.labels)
        shown: set[str] = set()
        for index, lines in enumerate(chart.panels.values()):
            row, column = divmod(index, COLUMNS)
            for label, (xs, ys) in lines.items():
                line = Scatter(
                    x=[places[x] for x in xs],
                    y=ys,
                    mode="lines+markers",
                    name=label,
                    legendgroup=label,
                    showlegend=label not in shown,
                    marker_color=looks[label][0],
                )
                shown.add(label)
                figure.add_trace(line, row + 1, column + 1)
            figure.update_xaxes(title_text=chart.x, row=row + 1, col=column + 1)
        if chart.even:
            figure.update_xaxes(tickvals=list(places.values()), ticktext=[f"{x:g}" for x in places])
        if chart.from_zero:
            figure.update_yaxes(rangemode="tozero")
        figure.update_layout(title=chart.title, height=140 + 320 * rows)
        parts.append(figure.to_html(full_html=False, include_plotlyjs=not parts))
    body = "\n".join(parts)
    write_whole(path, f'<!doctype html>\n<meta charset="utf-8">\n<title>{name}</title>\n{body}\n')
