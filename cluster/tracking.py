"""Experiment tracking: one MLflow store, touched by one process; the only import of mlflow.

Every call names its run: nothing here reads or sets MLflow's process-wide state, so an exported
``MLFLOW_RUN_ID``, threads and working directories cannot divert a run.
"""

import logging
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlparse

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag
from mlflow.exceptions import MlflowException

logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)  # tables of a new database

EXPERIMENT = "maskahead"
MODEL = "maskahead"
CHAMPION = "champion"
TRIAL_TAG = "trial_id"
SWEEP_TAG = "sweep_id"

Outcome = Literal["FINISHED", "FAILED", "KILLED"]
_SERVER_SCHEMES = ("http", "https", "databricks", "databricks-uc")
_DATABASE_SCHEMES = ("sqlite", "postgresql", "mysql", "mssql")


@dataclass(frozen=True)
class DataSource:
    """The problems that a run was measured on."""

    name: str
    digest: str
    source: str


@dataclass(frozen=True)
class ChildRun:
    """One trial as it is logged: parameter keys are the same for every trial."""

    trial_id: str
    name: str
    params: Mapping[str, Any]
    metrics: Mapping[str, float]
    tags: Mapping[str, str]
    outcome: Outcome
    record: Mapping[str, Any]
    """The whole result, kept as ``trial.json``."""
    started: float
    """When the trial began and ended, in seconds since 1970."""
    ended: float


def tracking_uri(runs: Path) -> str:
    """``MLFLOW_TRACKING_URI`` where it is set, else a database in ``runs``; paths made absolute.

    Raises ``ValueError`` for a store of files, which MLflow no longer writes.
    """
    given = os.environ.get("MLFLOW_TRACKING_URI", "")
    if not given:
        return f"sqlite:///{(runs / 'mlflow.db').resolve()}"
    scheme = urlparse(given).scheme.partition("+")[0]
    if scheme in _SERVER_SCHEMES:
        return given
    if scheme not in _DATABASE_SCHEMES:
        raise ValueError(
            f"MLFLOW_TRACKING_URI {given!r} is a folder; runs are kept in a database or on a "
            "server: sqlite:///PATH/mlflow.db, postgresql://..., http://HOST:PORT, or unset it "
            "for sqlite:///runs/mlflow.db"
        )
    if scheme == "sqlite":
        path = given.partition(":///")[2]
        return f"sqlite:///{Path(path).resolve()}"
    return given


class Tracking:
    """The store's experiment, created on first touch."""

    def __init__(self, uri: str, artifacts: Path) -> None:
        """``artifacts`` is where artifacts lie when the store is a database on this machine."""
        self.uri = uri
        if uri.startswith("sqlite:///"):
            Path(uri.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
        self.client = MlflowClient(tracking_uri=uri, registry_uri=uri)
        experiment = self.client.get_experiment_by_name(EXPERIMENT)
        if experiment is not None:
            self.experiment_id = experiment.experiment_id
        else:
            is_server = urlparse(uri).scheme in _SERVER_SCHEMES
            location = None if is_server else artifacts.resolve().as_uri()
            self.experiment_id = self.client.create_experiment(EXPERIMENT, location)

    def parent(self, sweep_id: str, name: str) -> str:
        """The run of a sweep: the one it had before, running again, or a new one."""
        found = self._search(f"tags.{SWEEP_TAG} = '{sweep_id}'")
        if found:
            run_id = found[0].info.run_id
            self.client.update_run(run_id, status="RUNNING")
            return run_id
        run = self.client.create_run(self.experiment_id, tags={SWEEP_TAG: sweep_id}, run_name=name)
        return run.info.run_id

    def children(self, parent: str) -> dict[str, tuple[str, str]]:
        """Trial id to (run id, status) of the parent's children; where a failed one was tried
        again, the run that finished."""
        found: dict[str, tuple[str, str]] = {}
        for run in self._search(f"tags.`mlflow.parentRunId` = '{parent}'"):
            trial_id = run.data.tags.get(TRIAL_TAG)
            if trial_id and found.get(trial_id, ("", ""))[1] != "FINISHED":
                found[trial_id] = (run.info.run_id, run.info.status)
        return found

    def log_child(
        self, parent: str, child: ChildRun, data: DataSource, unfinished: str | None
    ) -> str:
        """Log a finished trial as a child run and return its id; ``unfinished`` is its run that a
        kill cut short."""
        run_id = unfinished
        if run_id is None:
            tags = {"mlflow.parentRunId": parent, TRIAL_TAG: child.trial_id}
            run = self.client.create_run(
                self.experiment_id,
                start_time=round(child.started * 1000),
                tags=tags,
                run_name=child.name,
            )
            run_id = run.info.run_id
        self.log(run_id, child.params, child.metrics, child.tags, data)
        self.client.log_dict(run_id, dict(child.record), "trial.json")
        self.client.set_terminated(run_id, child.outcome, round(child.ended * 1000))
        return run_id

    def log(
        self,
        run_id: str,
        params: Mapping[str, Any],
        metrics: Mapping[str, float],
        tags: Mapping[str, str],
        data: DataSource | None = None,
    ) -> None:
        """Parameters, metrics, tags and the input data of a run, in one write each."""
        now = int(time.time() * 1000)
        self.client.log_batch(
            run_id,
            metrics=[Metric(key, float(value), now, 0) for key, value in metrics.items()],
            params=[Param(key, str(value)) for key, value in params.items()],
            tags=[RunTag(key, str(value)) for key, value in tags.items()],
        )
        if data is not None:
            dataset = Dataset(data.name, data.digest, "code", data.source)
            context = InputTag("mlflow.data.context", "evaluation")
            self.client.log_inputs(run_id, [DatasetInput(dataset, [context])])

    def log_files(self, run_id: str, files: Sequence[Path]) -> None:
        for file in files:
            self.client.log_artifact(run_id, str(file))

    def finish(self, run_id: str, outcome: Outcome) -> None:
        self.client.set_terminated(run_id, outcome)

    def register_champion(self, run_id: str, file: Path, description: str) -> str:
        """Make a run's configuration the version that ``maskahead@champion`` names."""
        try:
            self.client.create_registered_model(MODEL)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        source = f"runs:/{run_id}/{file.name}"
        known = self.client.search_model_versions(f"name = '{MODEL}' and run_id = '{run_id}'")
        version = next((v for v in known if v.description == description), None)
        if version is None:
            version = self.client.create_model_version(
                MODEL, source, run_id, description=description
            )
        self.client.set_registered_model_alias(MODEL, CHAMPION, version.version)
        return str(version.version)

    def fetch_registered(self, name: str, folder: Path) -> Path:
        """The configuration file behind ``models:/NAME@ALIAS`` or ``models:/NAME/VERSION``.

        Raises ``ValueError`` when the store has no such version.
        """
        model, alias, version = parse_model_uri(name)
        try:
            if alias:
                found = self.client.get_model_version_by_alias(model, alias)
            else:
                found = self.client.get_model_version(model, version)
        except MlflowException as error:
            raise ValueError(f"model {name!r}: {self.uri} holds no such version") from error
        folder.mkdir(parents=True, exist_ok=True)
        file = Path(found.source or "").name
        return Path(self.client.download_artifacts(str(found.run_id), file, str(folder)))

    def _search(self, query: str) -> list[Any]:
        """All runs that match, page by page."""
        runs: list[Any] = []
        token: str | None = None
        while True:
            page = self.client.search_runs([self.experiment_id], query, page_token=token)
            runs += page
            token = page.token
            if not token:
                return runs


def parse_model_uri(name: str) -> tuple[str, str, str]:
    """(model, alias, version) of a ``models:/`` name; one of the last two is empty."""
    path = name.removeprefix("models:/")
    model, at, alias = path.partition("@")
    if at and model and alias and path != name:
        return model, alias, ""
    model, slash, version = path.partition("/")
    if path == name or not (slash and model and version.isdigit()):
        raise ValueError(f"model {name!r}: write models:/NAME@ALIAS or models:/NAME/VERSION")
    return model, "", version
