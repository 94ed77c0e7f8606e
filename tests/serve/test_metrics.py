"""What Prometheus reads is what happened, and the dashboard asks for nothing else."""

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

import serve.engine_metrics
import serve.metrics
from actors.engine_stats import EngineStats
from serve.api import build_api
from serve.app import Endpoint, open_service
from serve.backends import LocalBackend
from serve.config import ServeConfig
from serve.service import Service
from tests.serve.conftest import MODEL

BODY = {"model": MODEL, "prompt": "hello", "maskahead": {"ignore_stop": True}}
DASHBOARD = Path(serve.metrics.__file__).with_name("grafana.json")

Sums = dict[str, float]


@pytest.fixture
def service(serve_config: ServeConfig) -> Iterator[Service]:
    """One of its own, whose counters begin at zero."""
    opened = open_service(serve_config)
    yield opened
    opened.backend.close()


def sums(page: str) -> Sums:
    """Every sample's value, summed over labels."""
    found: Sums = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def test_a_replica_has_warmed_up_before_it_takes_requests(serve_config: ServeConfig) -> None:
    async def run() -> tuple[EngineStats, Sums]:
        replica = object.__new__(Endpoint)  # as Ray Serve makes it: its __init__ is awaited
        await replica.__init__(serve_config)
        backend, counted = replica.service.backend, replica.service.metrics
        assert isinstance(backend, LocalBackend)
        try:
            stats = await backend.stats()
            assert backend.batching.engine.auto._curve, "no batch waits for its measurement"
            return stats, sums(counted.page(stats).decode())
        finally:
            backend.close()

    stats, found = asyncio.run(run())
    assert (stats.finished, stats.running) == (2, 0)
    assert stats.commits >= 8, "the block size: whatever drafts is warm, too"
    assert "maskahead_jobs_total" not in found, "nobody asked for it"


def test_counters_are_the_sums_of_usages(http: httpx.AsyncClient) -> None:
    async def run() -> tuple[list[dict[str, Any]], Sums, str]:
        bodies = [BODY, BODY | {"n": 2}, BODY | {"maskahead": {"method": "standard"}}]
        answers = [await http.post("/v1/completions", json=body) for body in bodies]
        await http.post("/v1/completions", json=BODY | {"n": 0})
        page = await http.get("/metrics")
        assert page.headers["content-type"].startswith("text/plain; version=")
        return [answer.json()["usage"] for answer in answers], sums(page.text), page.text

    usages, found, page = asyncio.run(run())
    efforts = [usage["maskahead"] for usage in usages]
    assert found["maskahead_completion_tokens_total"] == sum(
        usage["completion_tokens"] for usage in usages
    )
    assert found["maskahead_nfe_total"] == sum(effort["nfe"] for effort in efforts)
    assert found["maskahead_drafts_total"] == sum(effort["drafts"] for effort in efforts)
    assert found["maskahead_drafts_accepted_total"] == sum(e["accepted"] for e in efforts)
    assert found["maskahead_jobs_total"] == 3
    assert found["maskahead_answer_nfe_per_token_count"] == 4
    assert found["maskahead_time_to_first_text_seconds_count"] == 3
    assert found["maskahead_target_ready"] == 1
    assert found["maskahead_batch_size"] == found["maskahead_queue_length"] == 0
    assert found["maskahead_engine_joined_total"] == found["maskahead_engine_finished_total"] == 4
    for name in ("commits", "drafts", "drafts_accepted"):
        assert found[f"maskahead_engine_{name}_total"] == found[f"maskahead_{name}_total"] > 0
    assert 'maskahead_requests_total{route="/v1/completions",status="400"} 1.0' in page
    assert f'model="{MODEL}"' in page


def test_made_up_paths_share_a_label(http: httpx.AsyncClient) -> None:
    async def run() -> str:
        for number in range(3):
            await http.get(f"/made/up/{number}")
        return (await http.get("/metrics")).text

    assert 'maskahead_requests_total{route="unknown",status="404"} 3.0' in asyncio.run(run())


def test_a_job_that_was_left_counts_as_cancelled(service: Service) -> None:
    from serve.schema import CompletionRequest

    async def run() -> None:
        fields = BODY | {"max_tokens": 400}
        deltas = service.run(service.completion_job(CompletionRequest.model_validate(fields)))
        await anext(deltas)
        await deltas.aclose()

    asyncio.run(run())
    page = service.metrics.page(None).decode()
    assert 'maskahead_jobs_total{ending="cancelled",method="chain"} 1.0' in page
    assert sums(page)["maskahead_target_ready"] == 0
    assert service.num_answers == 0


def test_the_dashboard_asks_for_metrics_that_exist(http: httpx.AsyncClient) -> None:
    async def run() -> str:
        await http.post("/v1/completions", json=BODY)
        return (await http.get("/metrics")).text

    known = sums(asyncio.run(run()))
    panels = json.loads(DASHBOARD.read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    asked = {name for query in queries for name in re.findall(r"maskahead_\w+", query)}
    assert len(panels) >= 10
    assert asked - known.keys() == set()
    shown = {re.sub(r"_(total|bucket)$", "", name) for name in asked}
    engine = serve.engine_metrics.GAUGES | serve.engine_metrics.COUNTERS
    assert {field for field, _ in engine.values()} == {each.name for each in fields(EngineStats)}
    names = (*serve.metrics.COUNTERS, *serve.metrics.HISTOGRAMS, *engine)
    kept = {f"maskahead_{name}" for name in names}
    assert kept - shown == set(), "everything that is kept is shown"
    labels = set(re.findall(r"by \((\w+)\)", " ".join(queries)))
    assert labels == {"le", "method", "status", "ending"}
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_build_api_twice_counts_in_one_place(service: Service) -> None:
    for _ in range(2):
        transport = httpx.ASGITransport(build_api(service))
        http = httpx.AsyncClient(transport=transport, base_url="http://localhost")
        assert asyncio.run(http.get("/healthz")).status_code == 200
    page = service.metrics.page(None).decode()
    assert 'maskahead_requests_total{route="/healthz",status="200"} 2.0' in page


def test_prompt_tokens_of_the_cache_are_counted(http: httpx.AsyncClient) -> None:
    async def run() -> tuple[list[int], Sums]:
        body = BODY | {"prompt": "hello world, how are you? " * 3}
        answers = [(await http.post("/v1/completions", json=body)).json() for _ in range(2)]
        kept = [answer["usage"]["maskahead"]["cached_prompt_tokens"] for answer in answers]
        return kept, sums((await http.get("/metrics")).text)

    kept, found = asyncio.run(run())
    assert kept[0] == 0 < kept[1]
    assert found["maskahead_cached_prompt_tokens_total"] == kept[1]
    assert found["maskahead_cache_hit_tokens_total"] == kept[1]
    assert found["maskahead_cache_miss_tokens_total"] > 0
    assert 0 < found["maskahead_cache_kept_tokens"] < found["maskahead_cache_tokens"]
