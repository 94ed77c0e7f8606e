"""The Pareto plots of a sweep: forwards against speed, and speed against quality."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tune.row import TrialRow
from tune.space import spell

Value = Callable[[TrialRow], float]

NFE_TITLE = "NFE factor (standard / this)"
SPEED_TITLE = "tokens/s (this / standard)"
REPLAYED, LIVE, CHAMPION = "#7f7f7f", "#1f77b4", "#ff7f0e"
"""Their colours in both forms of a plot: grey, blue, orange."""


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of the points that no other point beats in both coordinates (larger is better), from
    left to right; of equal points the first."""
    order = sorted(range(len(points)), key=lambda i: (-points[i][0], -points[i][1], i))
    front, best = [], float("-inf")
    for index in order:
        if points[index][1] > best:
            front.append(index)
            best = points[index][1]
    return front[::-1]


@contextmanager
def put_whole(path: Path) -> Iterator[Path]:
    """Where to write a file that then replaces ``path`` at once."""
    partial = path.with_name(f".{path.name}.partial")
    yield partial
    partial.replace(path)


def nfe_factor(row: TrialRow) -> float:
    return row.nfe_factor_reference or 0.0


def speed(row: TrialRow) -> float:
    return row.speed_reference or 0.0


def accuracy(row: TrialRow) -> float:
    return row.accuracy or 0.0


def shown(rows: Sequence[TrialRow], fidelity: str) -> list[TrialRow]:
    return [row for row in rows if row.done and row.fidelity == fidelity]


def save_png(rows: Sequence[TrialRow], champion: TrialRow | None, path: Path) -> None:
    """Two panels for a page: replayed settings hollow, live ones filled, the fronts as lines."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    replayed, live = shown(rows, "replay"), shown(rows, "live")
    left.scatter(
        [nfe_factor(r) for r in replayed],
        [speed(r) for r in replayed],
        label="replayed (speed estimated)",
        facecolors="none",
        edgecolors=REPLAYED,
    )
    for axes, x, y in ((left, nfe_factor, speed), (right, speed, accuracy)):
        axes.scatter([x(r) for r in live], [y(r) for r in live], label="live", color=LIVE)
        front = [live[i] for i in pareto_front([(x(r), y(r)) for r in live])]
        axes.plot([x(r) for r in front], [y(r) for r in front], color=LIVE, alpha=0.5)
        if champion is not None:
            axes.scatter([x(champion)], [y(champion)], marker="*", s=180, color=CHAMPION)
    for row in live:
        low, high = row.accuracy_interval
        right.vlines(speed(row), low, high, color=LIVE, alpha=0.4)
    if champion is not None:
        figure.suptitle(f"champion: {spell(champion.options)}", fontsize=9)
    left.set(xlabel=NFE_TITLE, ylabel=SPEED_TITLE)
    right.set(xlabel=SPEED_TITLE, ylabel="accuracy (bars: Wilson 95 %)", ylim=(-0.02, 1.02))
    left.legend(loc="upper left", fontsize=8)
    with put_whole(path) as partial:
        FigureCanvasAgg(figure).print_png(str(partial))


def save_html(rows: Sequence[TrialRow], champion: TrialRow | None, path: Path) -> None:
    """The same for a browser, alone in one file; settings are named under the pointer."""
    from plotly.graph_objects import Figure, Scatter
    from plotly.subplots import make_subplots

    figure: Figure = make_subplots(1, 2, horizontal_spacing=0.2)
    groups = [
        ("replayed (speed estimated)", "circle-open", REPLAYED, shown(rows, "replay")),
        ("live", "circle", LIVE, shown(rows, "live")),
        ("champion", "star", CHAMPION, [champion] if champion is not None else []),
    ]
    for column, x, y in ((1, nfe_factor, speed), (2, speed, accuracy)):
        for name, symbol, colour, members in groups:
            trace = Scatter(
                x=[x(row) for row in members],
                y=[y(row) for row in members],
                text=[spell(row.options) for row in members],
                mode="markers",
                marker={"symbol": symbol, "size": 14 if symbol == "star" else 9, "color": colour},
                name=name,
                showlegend=column == 1,
            )
            figure.add_trace(trace, 1, column)
        live = shown(rows, "live")
        front = [live[i] for i in pareto_front([(x(row), y(row)) for row in live])]
        line = Scatter(
            x=[x(row) for row in front],
            y=[y(row) for row in front],
            mode="lines",
            line={"color": LIVE, "width": 1},
            name="front",
            showlegend=column == 1,
        )
        figure.add_trace(line, 1, column)
    figure.update_xaxes(title_text=NFE_TITLE, row=1, col=1)
    figure.update_yaxes(title_text=SPEED_TITLE, row=1, col=1)
    figure.update_xaxes(title_text=SPEED_TITLE, row=1, col=2)
    figure.update_yaxes(title_text="accuracy", range=[-0.02, 1.02], row=1, col=2)
    # Above the panels: MLflow shows them in a part of its page.
    figure.update_layout(legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"})
    with put_whole(path) as partial:
        figure.write_html(str(partial), include_plotlyjs=True)
