"""Requests of an endpoint as MLflow traces: what was asked, and how its answers were decoded.

As in all of :mod:`cluster.tracking`, nothing of MLflow's process-wide state is read or set.
"""

import json
import secrets
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlflow.entities import Span, SpanType, TraceData, TraceInfo, TraceLocation, TraceState
from mlflow.tracing.client import TracingClient

from cluster.tracking.store import Tracking

_SCHEMA = {"mlflow.trace_schema.version": "3"}


@dataclass(frozen=True)
class Stretch:
    """A named stretch of time, in seconds since the epoch, and what is known of it."""

    name: str
    begin: float
    end: float
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class RequestTrace:
    """One request, and its answers within it."""

    request: Stretch
    answers: Sequence[Stretch]
    failed: bool
    inputs: Any = None
    outputs: Any = None


class RequestTraces:
    """Writes traces into the experiment of a store."""

    def __init__(self, tracking: Tracking) -> None:
        self.experiment_id = tracking.experiment_id
        self._client = TracingClient(tracking.uri)

    def log(self, trace: RequestTrace) -> str:
        """Write one trace; returns its id."""
        number, request = secrets.token_bytes(16), trace.request
        state = TraceState.ERROR if trace.failed else TraceState.OK
        info = TraceInfo(
            trace_id=f"tr-{number.hex()}",
            trace_location=TraceLocation.from_experiment_id(self.experiment_id),
            request_time=int(request.begin * 1000),
            execution_duration=int((request.end - request.begin) * 1000),
            state=state,
            request_preview=None if trace.inputs is None else str(trace.inputs)[:200],
            response_preview=None if trace.outputs is None else str(trace.outputs)[:200],
            trace_metadata=_SCHEMA,
            tags={"mlflow.traceName": request.name},
        )
        stored = self._client.start_trace(info)
        root, ended = secrets.token_bytes(8), "ERROR" if trace.failed else "OK"
        texts = {"mlflow.spanInputs": trace.inputs, "mlflow.spanOutputs": trace.outputs}
        own = {key: text for key, text in texts.items() if text is not None}
        spans = [_span(number, stored.trace_id, root, None, request, ended, own)]
        for answer in trace.answers:
            part = secrets.token_bytes(8)
            spans.append(_span(number, stored.trace_id, part, root, answer, "OK", {}))
        self._client._upload_trace_data(stored, TraceData(spans))
        return stored.trace_id


def _span(
    trace: bytes,
    trace_id: str,
    number: bytes,
    parent: bytes | None,
    stretch: Stretch,
    ended: str,
    more: Mapping[str, Any],
) -> Span:
    named = {"mlflow.traceRequestId": trace_id, "mlflow.spanType": SpanType.LLM}
    attributes = {**named, **stretch.facts, **more}
    return Span.from_dict(
        {
            "trace_id": b64encode(trace).decode(),
            "span_id": b64encode(number).decode(),
            "parent_span_id": b64encode(parent).decode() if parent else None,
            "name": stretch.name,
            "start_time_unix_nano": int(stretch.begin * 1e9),
            "end_time_unix_nano": int(stretch.end * 1e9),
            "status": {"code": f"STATUS_CODE_{ended}", "message": ""},
            "attributes": {key: json.dumps(value) for key, value in attributes.items()},
        }
    )
