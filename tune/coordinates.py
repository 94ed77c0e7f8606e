"""Parallel coordinates of a sweep: one line a setting, through its knobs and what they came to."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tune.report import (
    NFE_TITLE,
    SPEED_TITLE,
    accuracy,
    nfe_factor,
    put_whole,
    shown,
    speed,
)
from tune.row import TrialRow
from tune.space import INACTIVE, KNOBS, flat_knobs, spell

Span = tuple[float, float]
MEASURES: tuple[tuple[str, Callable[[TrialRow], float], Span | None], ...] = (
    (NFE_TITLE, nfe_factor, None),
    ("p95 (s an answer)", lambda row: row.latency_p95 or 0.0, None),
    ("accuracy", accuracy, (0.0, 1.0)),
    (SPEED_TITLE, speed, None),
)


@dataclass(frozen=True)
class Axis:
    """One vertical axis: where each row crosses it, and the names of places that are no numbers."""

    title: str
    values: tuple[float, ...]
    ticks: tuple[str, ...] = ()
    """By place 0, 1, 2, ... ; none for a measured number."""
    span: Span | None = None
    """Where the axis begins and ends; else at its smallest and largest value."""


def axes_of(rows: Sequence[TrialRow]) -> list[Axis]:
    """The knobs that differ between ``rows``, then fidelity and measures; a knob's values stand in
    order, one place each, since what a method lacks is no number."""
    flat = [flat_knobs(row.options) for row in rows]
    axes = []
    for name in KNOBS:
        column = [knobs[name] for knobs in flat]
        if len({*column} - {INACTIVE}) > 1:
            axes.append(_named(name, column))
    fidelities = [row.fidelity for row in rows]
    if len(set(fidelities)) > 1:
        axes.append(_named("fidelity", fidelities))
    for title, measure, span in MEASURES:
        axes.append(Axis(title, tuple(measure(row) for row in rows), span=span))
    return axes


def _named(title: str, column: Sequence[Any]) -> Axis:
    """An axis with a place for every value: texts first, numbers by size."""
    order = sorted(set(column), key=lambda v: (not isinstance(v, str), v))
    places = {value: float(place) for place, value in enumerate(order)}
    ticks = tuple(v if isinstance(v, str) else f"{v:g}" for v in order)
    return Axis(title, tuple(places[value] for value in column), ticks)


def _plotted(rows: Sequence[TrialRow]) -> list[TrialRow]:
    return [*shown(rows, "replay"), *shown(rows, "live")]


def save_parallel_png(rows: Sequence[TrialRow], champion: TrialRow | None, path: Path) -> None:
    """For a page: coloured by speed, the champion thick."""
    from matplotlib import colormaps
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    plotted = _plotted(rows)
    axes = axes_of(plotted)
    figure = Figure(figsize=(max(6.0, 1.5 * len(axes)), 4.8), layout="constrained")
    panel = figure.subplots()
    heights = [_heights(axis) for axis in axes]
    fastest = max((speed(row) for row in plotted), default=1.0) or 1.0
    for index, row in enumerate(plotted):
        wins = champion is not None and row.key == champion.key
        panel.plot(
            range(len(axes)),
            [column[index] for column in heights],
            color="tab:orange" if wins else colormaps["viridis"](speed(row) / fastest),
            linewidth=3 if wins else 1,
            alpha=1.0 if wins else 0.5,
            zorder=3 if wins else 2,
        )
    for place, axis in enumerate(axes):
        panel.axvline(place, color="black", linewidth=0.6)
        for height, text in _labels(axis):
            panel.text(place, height, f" {text}", fontsize=7, va="center", zorder=4)
    panel.set(xticks=range(len(axes)), yticks=[], xlim=(-0.1, len(axes) - 0.6))
    panel.set_xticklabels([axis.title.replace(" (", "\n(") for axis in axes], fontsize=7)
    if champion is not None:
        figure.suptitle(f"champion: {spell(champion.options)}", fontsize=9)
    with put_whole(path) as partial:
        FigureCanvasAgg(figure).print_png(str(partial))


def _heights(axis: Axis) -> list[float]:
    """From 0 at the bottom to 1 at the top."""
    if not axis.values:
        return []
    low, high = axis.span or (min(axis.values), max(axis.values))
    return [(value - low) / (high - low) if high > low else 0.5 for value in axis.values]


def _labels(axis: Axis) -> list[tuple[float, str]]:
    """What stands beside an axis: every named place, or both ends of a number."""
    heights = _heights(axis)
    placed = list(zip(heights, axis.values, strict=True))
    if axis.ticks:
        return sorted({(height, axis.ticks[int(value)]) for height, value in placed})
    ends = {min(heights, default=0.0), max(heights, default=0.0)}
    return sorted({(height, f"{value:.3g}") for height, value in placed if height in ends})


def save_parallel_html(rows: Sequence[TrialRow], path: Path) -> None:
    """For a browser, alone in one file: axes can be moved, and ranges on them picked."""
    from plotly.graph_objects import Figure, Parcoords

    plotted = _plotted(rows)
    colours = {
        "color": [speed(row) for row in plotted],
        "colorscale": "Viridis",
        "showscale": True,
        "colorbar": {"title": {"text": SPEED_TITLE, "side": "right"}, "thickness": 12},
    }
    dimensions = [_dimension(axis) for axis in axes_of(plotted)]
    # Slanted and short: MLflow shows them in a part of its page.
    figure = Figure(Parcoords(dimensions=dimensions, line=colours, labelangle=-25))
    figure.update_layout(margin={"l": 60, "r": 20, "t": 80, "b": 40})
    with put_whole(path) as partial:
        figure.write_html(str(partial), include_plotlyjs=True)


def _dimension(axis: Axis) -> dict[str, Any]:
    """An axis as plotly takes it."""
    found: dict[str, Any] = {"label": axis.title.partition(" (")[0], "values": axis.values}
    if axis.ticks:
        found |= {"tickvals": list(range(len(axis.ticks))), "ticktext": axis.ticks}
    return found | ({"range": axis.span} if axis.span else {})
