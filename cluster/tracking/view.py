"""Views of the experiment's runs: filter, order, columns and charts, as MLflow's pages open them.

A view is a tag of the experiment, in the form in which the pages keep one that is shared by a link
(they drop a field that they do not know).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

VIEW_TAG = "mlflow.sharedViewState."
SECTION = "charts"


@dataclass(frozen=True)
class RunsView:
    """Some of the runs, those with the largest ``order`` first."""

    filter: str
    """In the language of MLflow's search."""
    order: str
    """A metric."""
    params: Sequence[str]
    metrics: Sequence[str]
    tags: Sequence[str]
    """Columns; parameters and metrics are the axes of parallel coordinates, too."""
    scatters: Sequence[tuple[str, str]]
    """Metrics drawn against each other, as x and y."""

    def text(self) -> str:
        """The tag's value."""
        columns = [f"metrics.`{name}`" for name in self.metrics]
        columns += [f"tags.`{name}`" for name in self.tags]
        columns += [f"params.`{name}`" for name in self.params]
        section = {"uuid": SECTION, "name": "Trials", "display": True}
        view = {
            "searchFilter": self.filter,
            "orderByKey": f"metrics.`{self.order}`",
            "orderByAsc": False,
            "selectedColumns": columns,
            "runsHiddenMode": "SHOW_ALL",
            "compareRunSections": [section | {"isReordered": False, "deleted": False}],
            "compareRunCharts": [*map(_scatter, self.scatters), self._parallel()],
        }
        return json.dumps(view)

    def _parallel(self) -> dict[str, Any]:
        axes = {"selectedParams": [*self.params], "selectedMetrics": [*self.metrics]}
        return _chart("PARALLEL", "parallel") | axes | {"showAllRuns": True}


def _scatter(metrics: tuple[str, str]) -> dict[str, Any]:
    x, y = ({"key": name, "type": "METRIC"} for name in metrics)
    return _chart("SCATTER", "-".join(metrics)) | {"xaxis": x, "yaxis": y}


def _chart(kind: str, name: str) -> dict[str, Any]:
    return {"type": kind, "uuid": name, "metricSectionId": SECTION, "runsCountToCompare": 100}


def runs_page(experiment_id: str, view: str | None = None) -> str:
    """Where the runs are shown, behind the address of a server: all, or as in a kept ``view``."""
    shared = f"&viewStateShareKey={view}" if view else ""
    return f"#/experiments/{experiment_id}/runs?workflowType=machine_learning{shared}"
