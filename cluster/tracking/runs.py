"""Runs as they are read back, found by what users call them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlflow.entities import Run

PARENT_TAG = "mlflow.parentRunId"
_HEX = frozenset("0123456789abcdef")
ID_LENGTH = 32


@dataclass(frozen=True)
class LoggedRun:
    """One run of the store, in plain values; times are seconds since 1970."""

    run_id: str
    name: str
    status: str
    params: Mapping[str, str]
    metrics: Mapping[str, float]
    tags: Mapping[str, str]
    started: float
    ended: float | None

    @property
    def parent(self) -> str | None:
        """The run of the sweep that it is a trial of."""
        return self.tags.get(PARENT_TAG)


def logged(run: "Run") -> LoggedRun:
    """MLflow's run in plain values."""
    info, data = run.info, run.data
    ended = info.end_time
    return LoggedRun(
        run_id=info.run_id,
        name=info.run_name or "",
        status=info.status,
        params=dict(data.params),
        metrics=dict(data.metrics),
        tags=dict(data.tags),
        started=(info.start_time or 0) / 1000,
        ended=None if ended is None else ended / 1000,
    )


def is_run_id(text: str) -> bool:
    """Whether ``text`` has the form of a run's id."""
    return len(text) == ID_LENGTH and set(text) <= _HEX


def only_one(text: str, found: Sequence[LoggedRun], names: Iterable[str]) -> LoggedRun:
    """The one run that ``text`` may mean; ``ValueError`` for none or several."""
    if len(found) == 1:
        return found[0]
    if not found:
        known = ", ".join(dict.fromkeys(names)) or "none"
        raise ValueError(
            f"run {text!r}: the store holds no such run; give a run's id or name, "
            f"models:/NAME@ALIAS, or one of the sweeps: {known}"
        )
    listed = ", ".join(f"{run.run_id} ({run.status})" for run in found)
    raise ValueError(f"run {text!r} may be any of {listed}; give the id of one")


def short_names(run: LoggedRun) -> set[str]:
    """What a sweep's run may be called: ``runs/NAME``, or ``NAME`` alone."""
    folder: Any = run.tags.get("folder")
    return {run.name} | ({folder, folder.removeprefix("runs/")} if folder else set())
