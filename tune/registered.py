"""Best configurations in the registry: what a version says of its origin, and promotion by hand."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cluster.tracking import LoggedRun, Tracking
from cluster.tracking.registry import (
    CONFIGURATIONS,
    LATEST,
    Registered,
    Version,
    find_version,
    point,
    register,
    versions_of,
)
from tune.config import SweepConfig
from tune.folder import CONFIG
from tune.results import BEST, best_yaml
from tune.row import TrialRow
from tune.space import spell

CONFIGURATION_FORMAT = 1
"""Of ``best.yaml``, which ``maskahead serve`` and ``decode`` take."""


def lineage_of(digests: Mapping[str, Any], parent: str, row: TrialRow) -> dict[str, str]:
    """A version's tags: digests of all that decided the numbers, the sweep's run, the promise."""
    found = {name: str(value) for name, value in digests.items() if value is not None}
    return {**found, "sweep_run": parent, "certificate": row.certificate or "none"}


def register_best(
    tracking: Tracking,
    row: TrialRow,
    run_id: str,
    file: Path,
    lineage: Mapping[str, str],
    aliases: Sequence[str],
) -> Registered:
    """A trial's configuration as a version of ``maskahead``; ``file`` is an artifact of its run."""
    speed = f", x{row.speed_reference:.2f} tokens/s" if row.speed_reference else ""
    described = f"{spell(row.options)}: {row.certificate}{speed}"
    version = Version(CONFIGURATIONS, run_id, file.name, described, CONFIGURATION_FORMAT, lineage)
    return register(tracking, version, aliases)


def promote(tracking: Tracking, named: str, alias: str) -> tuple[Registered, str | None]:
    """Let ``alias`` name a version, or that of a run; returns it, and the number that the alias
    named before, if another.

    ``named`` is ``models:/NAME/VERSION``, ``models:/NAME@ALIAS``, ``NAME/VERSION``, a run's id or
    name, or a sweep (``runs/NAME``, which stands for its champion). Raises ``ValueError`` for what
    is not there, and for a trial that was not measured on the target.
    """
    if named.startswith("models:/") or is_version(named):
        version = find_version(tracking, "models:/" + named.removeprefix("models:/"))
    else:
        version = version_of_run(tracking, stand_in(tracking, tracking.find(named)))
    return version, point(tracking, version, alias)


def is_version(text: str) -> bool:
    """Whether ``text`` is ``NAME/VERSION`` of one of our models, not a folder of runs."""
    model, slash, number = text.partition("/")
    ours = model.split("-")[0] == CONFIGURATIONS
    return bool(slash) and ours and (number.isdigit() or number == LATEST)


def stand_in(tracking: Tracking, run: LoggedRun) -> LoggedRun:
    """The run that a sweep is judged by, its champion's; any other run stands for itself."""
    champion = run.tags.get("champion")
    if run.tags.get("kind") != "sweep":
        return run
    if champion in (None, "none"):
        raise ValueError(f"run {run.name!r} is a sweep without a champion; name one of its trials")
    return tracking.get(str(champion))


def version_of_run(tracking: Tracking, run: LoggedRun) -> Registered:
    """The newest version of a run; a live trial that has none gets one."""
    known = versions_of(tracking, None, run.run_id)
    if known:
        return known[0]
    text = tracking.read(run.run_id, "trial.json")
    if text is None or run.parent is None:
        raise ValueError(f"run {run.name!r} is neither a trial nor a training with a version")
    row = TrialRow.model_validate_json(text)
    if not row.done or row.fidelity != "live":
        state = row.status if not row.done else "was only replayed: nothing was compared"
        raise ValueError(f"run {run.name!r} {state}; promote a live trial that is done")
    return _register_trial(tracking, run, row)


def _register_trial(tracking: Tracking, run: LoggedRun, row: TrialRow) -> Registered:
    assert run.parent is not None
    parent = tracking.get(run.parent)
    config = tracking.read(run.parent, CONFIG)
    if config is None:
        raise ValueError(f"run {parent.name!r} has no {CONFIG}: it is of an older sweep; resume it")
    sweep = SweepConfig.model_validate(json.loads(config)["config"])
    digests = digests_of(parent)
    facts = {name: parent.tags.get(name) for name in ("command", "git_commit")}
    with TemporaryDirectory() as place:
        file = Path(place) / BEST
        text = best_yaml(sweep, row, run.run_id, facts | {"digests": digests})
        file.write_text(text, encoding="utf-8")
        tracking.log_files(run.run_id, [file])
        lineage = lineage_of(digests, run.parent, row)
        return register_best(tracking, row, run.run_id, file, lineage, [])


def digests_of(run: LoggedRun) -> dict[str, str]:
    """The digests among a run's tags."""
    prefix = "digests."
    found = {n.removeprefix(prefix): text for n, text in run.tags.items() if n.startswith(prefix)}
    return {name: text for name, text in found.items() if text != "None"}
