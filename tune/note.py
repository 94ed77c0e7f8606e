"""What to look at in MLflow, for whoever opens a sweep: a note on its run, a view of its trials."""

from collections.abc import Mapping

from cluster.tracking.view import RunsView

NOTE_TAG = "mlflow.note.content"

NOTE = """**[All live trials, fastest first, and as charts]({page})**

Sweep `{folder}` of target `{target}`: `{command}`

Each trial is a child run. Columns that tell most:

| column | meaning |
|---|---|
| tag `fidelity` | `live`: on the target; `replay`: exact forwards from traces, estimated speed |
| tag `certificate` | `exact`: every output equals draft-free decoding; others win only if allowed |
| metric `speed_reference` | tokens/s over those of standard decoding without a cap |
| metric `nfe_factor_reference` | forwards (without prefill) of standard decoding over this one's |
| metric `accuracy` | with `accuracy_low` and `accuracy_high`, Wilson's 95 % interval |
| parameters `method`, `budget`, `cap`, ... | the setting; `-` where the method has no such knob |

The champion is the best live trial, by the first of the sweep's objectives, that is `exact` (unless
the configuration allows more) and not below standard decoding's accuracy: tag `champion` names its
run, `champion/...` its metrics, and `models:/maskahead@champion` its `best.yaml`. Baselines have
the tag `baseline: true`. A failed trial is a FAILED run, its reason in the tag `error` and in its
description; one that could not win any more is a KILLED one.

The plots are among the artifacts; `maskahead report sweep {folder}` makes them again from this
store, and `maskahead compare RUN RUN` sets runs side by side.
"""


def sweep_note(folder: str, tags: Mapping[str, str], page: str) -> str:
    """Markdown for the parent run; ``page`` shows its :func:`trials_view`."""
    found = {"target": tags.get("target.target"), "command": tags.get("command")}
    texts = {key: text or "unknown" for key, text in found.items()}
    return NOTE.format(folder=folder, page=page, **texts)


def trials_view(parent: str) -> RunsView:
    """The live trials of the sweep whose run is ``parent``: replayed ones have estimated speeds."""
    return RunsView(
        filter=f"tags.`mlflow.parentRunId` = '{parent}' and tags.fidelity = 'live'",
        order="speed_reference",
        params=("method", "budget", "cap"),
        metrics=("speed_reference", "nfe_factor_reference", "accuracy"),
        tags=("certificate", "baseline", "error"),
        scatters=(("nfe_factor_reference", "speed_reference"), ("speed_reference", "accuracy")),
    )
