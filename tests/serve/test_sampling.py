"""A share of requests becomes MLflow traces, without text unless it is asked for."""

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from mlflow.tracing.client import TracingClient

from cluster.tracking import Tracking
from cluster.tracking.traces import RequestTraces
from decoders.options import DecodeOptions
from decoders.request import Request
from serve.account import Account
from serve.api import build_api
from serve.app import open_service
from serve.config import ServeConfig
from serve.sampling import MOST_WAITING, Sampler
from tests.serve.conftest import MODEL

BODY = {"model": MODEL, "prompt": "hello", "maskahead": {"ignore_stop": True}, "n": 2}


@pytest.fixture(scope="module")
def tracking(tmp_path_factory: pytest.TempPathFactory) -> Tracking:
    folder = tmp_path_factory.mktemp("store")
    return Tracking(f"sqlite:///{folder}/mlflow.db", folder / "artifacts")


@pytest.fixture
def traced(serve_config: ServeConfig, tracking: Tracking) -> Callable[..., list[Any]]:
    """The traces that some requests leave under settings of ``serve``, the newest first."""

    def ask(bodies: list[dict[str, Any]], **settings: Any) -> list[Any]:
        uri = {"trace_uri": tracking.uri}
        operation = serve_config.serve.model_copy(update=uri | settings)
        service = open_service(serve_config.model_copy(update={"serve": operation}))
        transport = httpx.ASGITransport(build_api(service))

        async def run() -> None:
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
                for body in bodies:
                    await http.post("/v1/completions", json=body)

        asyncio.run(run())
        service.close()
        client = TracingClient(tracking.uri)
        found = client.search_traces(locations=[tracking.experiment_id])
        for trace in found:
            client.delete_traces(tracking.experiment_id, trace_ids=[trace.info.trace_id])
        return list(found)

    return ask


def test_a_trace_says_how_a_request_was_decoded(traced: Callable[..., list[Any]]) -> None:
    (trace,) = traced([BODY], trace_ratio=1.0)
    root, *answers = trace.data.spans
    assert trace.info.state.value == "OK"
    assert root.name == "decode chain"
    assert root.attributes["completion_tokens"] == 48
    assert [span.name for span in answers] == ["answer 0", "answer 1"]
    assert all(span.parent_id == root.span_id for span in answers)
    assert sum(span.attributes["nfe"] for span in answers) == root.attributes["nfe"]
    assert all(root.start_time_ns <= span.start_time_ns for span in answers)
    assert all(span.end_time_ns <= root.end_time_ns for span in answers)
    assert "hello" not in str(trace.to_dict())


def test_text_is_traced_when_it_is_logged(traced: Callable[..., list[Any]]) -> None:
    (trace,) = traced([BODY], trace_ratio=1.0, log_text=True)
    assert trace.data.spans[0].inputs == ["hello", "hello"]
    assert len(trace.data.spans[0].outputs) == 2


def test_the_ratio_decides_how_many_are_kept(
    traced: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    draws = iter([0.1, 0.6, 0.4])
    monkeypatch.setattr("serve.sampling.random.random", lambda: next(draws))
    assert len(traced([BODY] * 3, trace_ratio=0.5)) == 2


def test_a_store_that_fails_or_is_slow_costs_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "ray.serve")
    account = Account((Request("one", (), DecodeOptions()),))
    opened = threading.Event()

    def failing() -> RequestTraces:
        opened.wait(10)
        raise RuntimeError("no such store")

    sampler = Sampler(1.0, failing)
    for _ in range(MOST_WAITING + 5):
        sampler.offer(account, None, None)
    opened.set()
    sampler.close()
    said = [record.message for record in caplog.records]
    assert any("dropped" in text for text in said)
    assert any("lost" in text for text in said)
    with pytest.raises(queue.Empty):
        sampler._waiting.get_nowait()
