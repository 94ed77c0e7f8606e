"""The plots of a load run: how latencies are spread, and what more load does to them."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.figures import Chart, Line, Panels, save_html, save_png
from benchmarks.load.client import Sample
from benchmarks.load.config import LoadConfig
from benchmarks.load.summary import Turn

SPREAD, GROWTH = "Share of answers within", "What more load does"
READ: dict[str, Callable[[Sample], float | None]] = {
    "seconds to the first text": lambda sample: sample.first_text,
    "seconds a token after it": lambda sample: sample.per_token,
    "seconds of the whole answer": lambda sample: sample.seconds,
}


def save_figures(
    config: LoadConfig,
    measured: Sequence[tuple[float, Mapping[str, Sequence[Turn]]]],
    levels: Sequence[Mapping[str, Any]],
    out: Path,
) -> None:
    """``latency.png``; ``levels.png`` where there are several levels; both in ``load.html``."""
    unit = {"closed": "clients", "open": "requests a second"}[config.loop]
    # One alone needs no name.
    labels = {each.name: each.label for each in config.endpoints if len(config.endpoints) > 1}
    charts = [Chart(SPREAD, "seconds", _spreads(measured, labels, unit), from_zero=True)]
    save_png(charts[0], out / "latency.png")
    if len(levels) > 1:
        charts.append(Chart(GROWTH, unit, _over_levels(levels, labels), from_zero=True))
        save_png(charts[1], out / "levels.png")
    save_html("Load", charts, out / "load.html")


def _spreads(
    measured: Sequence[tuple[float, Mapping[str, Sequence[Turn]]]],
    labels: Mapping[str, str],
    unit: str,
) -> Panels:
    """Per latency, a line of every level and endpoint: seconds to the share that took no longer."""
    panels: Panels = {name: {} for name in READ}
    for level, turns in measured:
        for endpoint, made in turns.items():
            answered = [s for turn in made for s in turn if s.error is None]
            told = [label] if (label := labels.get(endpoint)) else []
            for name, read in READ.items():
                line = ecdf([value for s in answered if (value := read(s)) is not None])
                panels[name][", ".join((*told, f"{unit}: {level:g}"))] = line
    return panels


def ecdf(values: Sequence[float]) -> Line:
    """The empirical distribution: values ascending, and the share of all that is no larger."""
    ordered = sorted(values)
    return ordered, [(index + 1) / len(ordered) for index in range(len(ordered))]


def _over_levels(levels: Sequence[Mapping[str, Any]], labels: Mapping[str, str]) -> Panels:
    columns = {
        "tokens a second": lambda own: own["tokens_per_second"],
        "first text, p95 seconds": lambda own: (own["first_text"] or {}).get("p95"),
        "a token, p95 seconds": lambda own: (own["per_token"] or {}).get("p95"),
        "goodput, answers a second": lambda own: own["goodput"]["per_second"],
    }
    endpoints = levels[0]["endpoints"]
    return {
        name: {labels.get(each, ""): _points(levels, each, read) for each in endpoints}
        for name, read in columns.items()
    }


def _points(
    levels: Sequence[Mapping[str, Any]], endpoint: str, read: Callable[[Any], float | None]
) -> Line:
    pairs = [(level["level"], read(level["endpoints"][endpoint])) for level in levels]
    known = [(x, y) for x, y in pairs if y is not None]
    return [x for x, _ in known], [y for _, y in known]
