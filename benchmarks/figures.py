"""Lines over lines, drawn for a page (PNG) and for a browser (HTML)."""

import math
from collections.abc import Mapping
from pathlib import Path

from tasks.whole import write_whole

MARKERS = ("o", "s", "^")
COLUMNS = 2
"""Panels side by side."""

Line = tuple[list[float], list[float]]
Panels = dict[str, dict[str, Line]]
"""Panel to line to its points, by rising x."""


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


def save_html(name: str, figures: Mapping[str, tuple[str, Panels]], path: Path) -> None:
    """All figures in one page, called ``name``, that needs nothing else: title to (name of x,
    panels)."""
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
    write_whole(path, f'<!doctype html>\n<meta charset="utf-8">\n<title>{name}</title>\n{body}\n')
