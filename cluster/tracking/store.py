"""The store's experiment: runs are written and read here, each named by every call."""

import json
import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from cluster.passwords import without_passwords
from cluster.tracking.runs import PARENT_TAG, LoggedRun, is_run_id, logged, only_one, short_names
from cluster.tracking.uri import check_server, keeps_artifacts, made_by_one
from cluster.tracking.view import VIEW_TAG, RunsView, runs_page

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
# A server that goes away ends a run within half a minute; by default within several ones.
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "4")
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")  # two lines a trial

from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag
from mlflow.exceptions import MlflowException

logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)  # tables of a new database

EXPERIMENT = "maskahead"
KIND = ("mlflow.experimentKind", "custom_model_development")
"""How MLflow's pages open the experiment: on its runs. By default they show traces of chats."""
TRIAL_TAG = "trial_id"
SWEEP_TAG = "sweep_id"
TRIAL, PROBLEMS = "trial.json", "problems.json"

Outcome = Literal["FINISHED", "FAILED", "KILLED"]
LONGEST_TAG = 5000
"""Characters; stores refuse longer ones."""
_COUNTS = {"FINISHED": 2, "RUNNING": 1}
"""Which run of a trial counts, where it has several."""


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
    problems: Mapping[str, Sequence[Any]] | None = None
    """Columns of the table of problems, kept as ``problems.json``."""


class Tracking:
    """The store's experiment, created on first touch."""

    def __init__(self, uri: str, artifacts: Path) -> None:
        """``artifacts`` is where artifacts lie when the store is a database on this machine.

        Raises ``ValueError`` within seconds when ``uri`` names a server and none answers.
        """
        self.uri = uri
        check_server(uri)
        with made_by_one(uri):
            self.client = MlflowClient(tracking_uri=uri, registry_uri=uri)
            self.experiment_id = self._find_experiment(artifacts)

    def _find_experiment(self, artifacts: Path) -> str:
        found = self.client.get_experiment_by_name(EXPERIMENT)
        if found is None:
            location = None if keeps_artifacts(self.uri) else artifacts.resolve().as_uri()
            try:
                return self.client.create_experiment(EXPERIMENT, location, dict([KIND]))
            except MlflowException as error:  # another machine was first
                found = self.client.get_experiment_by_name(EXPERIMENT)
                if found is None:
                    raise error
        if KIND[0] not in found.tags:  # made by an earlier version
            self.client.set_experiment_tag(found.experiment_id, *KIND)
        return found.experiment_id

    def keep_view(self, name: str, view: RunsView) -> str:
        """Keep a view of the experiment's runs; returns its page, behind a server's address."""
        self.client.set_experiment_tag(self.experiment_id, VIEW_TAG + name, view.text())
        return runs_page(self.experiment_id, name)

    def parent(self, sweep_id: str, name: str, reopen: bool = True) -> str:
        """The run of a sweep (or of a training): the one it had before, running again, or a new
        one. One that is finished is taken up again only with ``reopen``."""
        found = self._search(f"tags.{SWEEP_TAG} = '{sweep_id}'")
        if found and (reopen or found[0].status != "FINISHED"):
            self.client.update_run(found[0].run_id, status="RUNNING")
            return found[0].run_id
        run = self.client.create_run(self.experiment_id, tags={SWEEP_TAG: sweep_id}, run_name=name)
        return run.info.run_id

    def children(self, parent: str) -> dict[str, tuple[str, str]]:
        """Trial id to (run id, status) of the parent's children; where one was tried again, the
        run that finished, else one that a kill cut short, else the latest."""
        found: dict[str, tuple[str, str]] = {}
        for run in self.trials(parent):
            trial_id = run.tags.get(TRIAL_TAG)
            if not trial_id:
                continue
            known = found.get(trial_id, ("", ""))[1]
            if not known or _COUNTS.get(run.status, 0) > _COUNTS.get(known, 0):
                found[trial_id] = (run.run_id, run.status)
        return found

    def begin_child(self, parent: str, child: ChildRun) -> str:
        """A child run that is still to be logged."""
        run = self.client.create_run(
            self.experiment_id,
            start_time=_milliseconds(child.started),
            tags={PARENT_TAG: parent, TRIAL_TAG: child.trial_id},
            run_name=child.name,
        )
        return run.info.run_id

    def log_child(
        self, parent: str, child: ChildRun, data: DataSource, unfinished: str | None
    ) -> str:
        """Log a finished trial as a child run and return its id; ``unfinished`` is its run that was
        begun before. The run begins and ends when the trial did."""
        run_id = unfinished or self.begin_child(parent, child)
        tags = dict(child.tags)
        if child.problems:  # a table, as MLflow's pages show it
            rows = [list(row) for row in zip(*child.problems.values(), strict=True)]
            table = {"columns": list(child.problems), "data": rows}
            self.client.log_dict(run_id, table, PROBLEMS)
            tags["mlflow.loggedArtifacts"] = json.dumps([{"path": PROBLEMS, "type": "table"}])
        self.log(run_id, child.params, child.metrics, tags, data, at=child.ended)
        self.client.log_dict(run_id, dict(child.record), TRIAL)
        self.client.set_terminated(run_id, child.outcome, _milliseconds(child.ended))
        return run_id

    def log(
        self,
        run_id: str,
        params: Mapping[str, Any],
        metrics: Mapping[str, float],
        tags: Mapping[str, str],
        data: DataSource | None = None,
        step: int = 0,
        at: float | None = None,
    ) -> None:
        """Parameters, metrics (of one ``step``), tags and the input data of a run, in one write
        each."""
        now = _milliseconds(at or time.time())
        self.client.log_batch(
            run_id,
            metrics=[Metric(key, float(value), now, step) for key, value in metrics.items()],
            params=[Param(key, str(value)) for key, value in params.items()],
            tags=[RunTag(key, str(value)) for key, value in tags.items()],
        )
        if data is not None:
            dataset = Dataset(data.name, data.digest, "code", data.source)
            context = InputTag("mlflow.data.context", "evaluation")
            self.client.log_inputs(run_id, [DatasetInput(dataset, [context])])

    def log_files(self, run_id: str, files: Iterable[Path], folder: str | None = None) -> None:
        """Files as artifacts, in the ``folder`` of the run."""
        for file in files:
            self.client.log_artifact(run_id, str(file), folder)

    def finish(self, run_id: str, outcome: Outcome) -> None:
        self.client.set_terminated(run_id, outcome)

    @contextmanager
    def lasting(self, run_id: str) -> Iterator[None]:
        """The run ends as the block does: finished, killed by an interrupt, or failed, with its
        reason in the tag ``error``. A store that is away does not hide why the block ended."""
        try:
            yield
        except BaseException as error:
            interrupted = isinstance(error, KeyboardInterrupt)
            with suppress(Exception):
                if not interrupted:
                    told = without_passwords(f"{type(error).__name__}: {error}")
                    self.log(run_id, {}, {}, {"error": told[:LONGEST_TAG]})
                self.finish(run_id, "KILLED" if interrupted else "FAILED")
            raise
        if "error" in self.get(run_id).tags:  # of an earlier try
            self.client.delete_tag(run_id, "error")
        self.finish(run_id, "FINISHED")

    def find(self, text: str) -> LoggedRun:
        """The run with that id or name, or the sweep of that folder (``NAME`` or ``runs/NAME``).

        Raises ``ValueError`` when the store holds none or several of them.
        """
        if is_run_id(text):
            try:
                return logged(self.client.get_run(text))
            except MlflowException as error:
                raise ValueError(
                    f"run {text!r}: {without_passwords(self.uri)} holds no such run"
                ) from error
        named = text.rstrip("/")
        parents = [run for run in self._search(f"tags.{SWEEP_TAG} != ''") if run.parent is None]
        found = [run for run in parents if named in short_names(run)]
        if not found:
            quoted = named.replace("'", "")
            found = self._search(f"attributes.run_name = '{quoted}'")
        return only_one(text, found, (run.tags.get("folder", run.name) for run in parents))

    def get(self, run_id: str) -> LoggedRun:
        return logged(self.client.get_run(run_id))

    def trials(self, parent: str) -> list[LoggedRun]:
        """The children of a sweep's run, the latest first."""
        return self._search(f"tags.`{PARENT_TAG}` = '{parent}'")

    def read(self, run_id: str, artifact: str) -> str | None:
        """The text of a run's artifact, if it has it."""
        folder = artifact.rpartition("/")[0] or None
        if artifact not in {item.path for item in self.client.list_artifacts(run_id, folder)}:
            return None
        with TemporaryDirectory() as place:
            return Path(self.client.download_artifacts(run_id, artifact, place)).read_text(
                encoding="utf-8"
            )

    def _search(self, query: str) -> list[LoggedRun]:
        """All runs that match, page by page."""
        runs: list[LoggedRun] = []
        token: str | None = None
        while True:
            page = self.client.search_runs([self.experiment_id], query, page_token=token)
            runs += [logged(run) for run in page]
            token = page.token
            if not token:
                return runs


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
