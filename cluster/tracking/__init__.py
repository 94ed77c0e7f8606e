"""Experiment tracking and the registry: one MLflow store; mlflow is imported in this package only.

Every call names its run: nothing here reads or sets MLflow's process-wide state, so an exported
``MLFLOW_RUN_ID``, threads and working directories cannot divert a run.
"""

from cluster.configuration import RUNS
from cluster.tracking.runs import LoggedRun
from cluster.tracking.store import ChildRun, DataSource, Outcome, Tracking
from cluster.tracking.uri import check_store, tracking_uri

__all__ = [
    "ChildRun",
    "DataSource",
    "LoggedRun",
    "Outcome",
    "Tracking",
    "check_store",
    "open_store",
    "tracking_uri",
]


def open_store() -> Tracking:
    """The store that sweeps and trainings write to, which must be there."""
    uri = tracking_uri(RUNS)
    check_store(uri)
    return Tracking(uri, RUNS / "artifacts")
