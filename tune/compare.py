"""``maskahead compare``: what differs between runs, and what came out, side by side."""

from collections.abc import Mapping, Sequence
from typing import Any

from cluster.tracking import LoggedRun, Tracking
from cluster.tracking.registry import find_version
from tune.registered import stand_in

FIRST = ("speed_reference", "nfe_factor_reference", "tokens_per_second", "accuracy")
"""Metrics that are shown before the others."""
SYSTEM = "system/"
CERTIFICATE = "certificate"


def compare(tracking: Tracking, named: Sequence[str]) -> dict[str, Any]:
    """The runs behind ``named``, and only what differs of their settings; all of their metrics.

    A sweep stands for its champion. Raises ``ValueError`` for fewer than two, or unknown ones.
    """
    if len(named) < 2:
        raise ValueError("compare: name at least two runs")
    runs = [read(tracking, name) for name in named]
    settings = [settings_of(run) for run in runs]
    metrics = [{k: v for k, v in run.metrics.items() if not k.startswith(SYSTEM)} for run in runs]
    return {
        "runs": [{"named": name, **facts(run)} for name, run in zip(named, runs, strict=True)],
        "settings": {name: [one.get(name) for one in settings] for name in differing(settings)},
        CERTIFICATE: [run.tags.get(CERTIFICATE) for run in runs],
        "metrics": {name: [one.get(name) for one in metrics] for name in ordered(metrics)},
    }


def read(tracking: Tracking, name: str) -> LoggedRun:
    """The run of a ``models:/`` name, or of whatever else runs are called."""
    if name.startswith("models:/"):
        return tracking.get(find_version(tracking, name).run_id)
    return stand_in(tracking, tracking.find(name))


def facts(run: LoggedRun) -> dict[str, Any]:
    """Who the run is, and how it ended."""
    seconds = None if run.ended is None else run.ended - run.started
    return {"id": run.run_id, "name": run.name, "status": run.status, "seconds": seconds}


def settings_of(run: LoggedRun) -> dict[str, str]:
    """What decided a run: its parameters, and the digests of what it read."""
    digests = {name: text for name, text in run.tags.items() if name.startswith("digests.")}
    return {**run.params, **digests}


def differing(settings: Sequence[Mapping[str, str]]) -> list[str]:
    """Names whose values are not the same everywhere, in the order in which they first stand."""
    names = dict.fromkeys(name for one in settings for name in one)
    return [name for name in names if len({one.get(name) for one in settings}) > 1]


def ordered(metrics: Sequence[Mapping[str, float]]) -> list[str]:
    """All names: the telling ones first, the others by the alphabet."""
    names = {name for one in metrics for name in one}
    return [*(n for n in FIRST if n in names), *sorted(names - {*FIRST})]


def table_rows(compared: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row a setting, the certificate, one row a metric; one column a run."""
    columns = column_names(compared["runs"])

    def row(kind: str, name: str, values: Sequence[Any]) -> dict[str, Any]:
        return {"": f"{kind} {name}".strip(), **dict(zip(columns, values, strict=True))}

    rows = [row("", "status", [run["status"] for run in compared["runs"]])]
    rows += [row("setting", name, values) for name, values in compared["settings"].items()]
    rows.append(row("", CERTIFICATE, compared[CERTIFICATE]))
    rows += [row("metric", name, values) for name, values in compared["metrics"].items()]
    return rows


def column_names(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the runs were called and are called, numbered where two would look the same."""
    names = [
        run["name"]
        if run["named"] in (run["id"], run["name"])
        else f"{run['named']}: {run['name']}"
        for run in runs
    ]
    return [f"{i}. {name}" if names.count(name) > 1 else name for i, name in enumerate(names, 1)]
