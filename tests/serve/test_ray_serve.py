"""The endpoint on a real local Ray Serve, with OpenAI's client on a real socket."""

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import openai
import pytest
from ray import serve
from ray.util import placement_group_table

from actors.engine_stats import EngineStats
from cluster.session import Resources
from models.config import TargetConfig
from serve.app import open_service, serve_application
from serve.config import ServeConfig
from serve.running import serving
from serve.schema import CompletionRequest
from serve.service import Service
from tests.serve.conftest import MODEL

pytestmark = pytest.mark.ray

MESSAGES: Any = [{"role": "user", "content": "hi"}]
ENDLESS = {"maskahead": {"ignore_stop": True}}


@pytest.fixture(scope="module")
def url(ray_cluster: Resources, serve_config: ServeConfig) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with serving(serve_config, "127.0.0.1", port) as base_url:
        yield base_url


@pytest.fixture
def remote(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=url, api_key="none", max_retries=0)


@pytest.fixture
def becomes_idle(url: str) -> Callable[[], bool]:
    """Whether the batch empties well before the answers in it could be complete."""

    def wait() -> bool:
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            if httpx.get(url.replace("/v1", "/readyz")).json()["running"] == 0:
                return True
        return False

    return wait


def test_the_endpoint_answers_as_the_service_in_this_process(
    remote: openai.OpenAI, client: openai.AsyncOpenAI
) -> None:
    fields: dict[str, Any] = {"model": MODEL, "messages": MESSAGES, "temperature": 1, "seed": 5}
    here = asyncio.run(client.chat.completions.create(**fields))
    there = remote.chat.completions.create(**fields)
    streamed = list(remote.chat.completions.create(**fields, stream=True))
    assert there.choices == here.choices
    text = "".join(chunk.choices[0].delta.content or "" for chunk in streamed)
    assert text == here.choices[0].message.content
    assert there.usage is not None
    assert here.usage is not None
    assert there.usage.completion_tokens == here.usage.completion_tokens
    effort = [(usage.model_extra or {})["maskahead"]["nfe"] for usage in (here.usage, there.usage)]
    assert effort[0] == effort[1] > 0


def test_stop_strings_and_completions_work(remote: openai.OpenAI) -> None:
    fields: dict[str, Any] = {"model": MODEL, "prompt": "hello", "extra_body": ENDLESS}
    text = remote.completions.create(**fields).choices[0].text
    cut = remote.completions.create(**fields, stop=text[5:9]).choices[0]
    assert (cut.text, cut.finish_reason) == (text[: text.index(text[5:9])], "stop")


def test_bad_requests_raise_the_clients_own_errors(remote: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        remote.completions.create(model=MODEL, prompt="a", frequency_penalty=1)
    assert bad.value.param == "frequency_penalty"
    with pytest.raises(openai.NotFoundError) as unknown:
        remote.completions.create(model="gpt", prompt="a")
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError):
        remote.embeddings.create(model=MODEL, input="a")


def test_a_client_that_leaves_a_stream_stops_its_forwards(
    remote: openai.OpenAI, becomes_idle: Callable[[], bool]
) -> None:
    stream = remote.completions.create(
        model=MODEL, prompt="hello", max_tokens=500, stream=True, extra_body=ENDLESS, n=4
    )
    next(iter(stream))
    stream.close()
    assert becomes_idle()


def test_a_client_that_gives_up_waiting_stops_its_forwards(
    remote: openai.OpenAI, becomes_idle: Callable[[], bool]
) -> None:
    with pytest.raises(openai.APITimeoutError):
        remote.with_options(timeout=0.5).completions.create(
            model=MODEL, prompt="hello", max_tokens=500, extra_body=ENDLESS, n=4
        )
    assert becomes_idle()


def test_a_group_of_two_ranks_serves_the_same_answers(
    ray_cluster: Resources, serve_config: ServeConfig, service: Service
) -> None:
    two = TargetConfig(path=serve_config.target.path, dtype="float64", tp=2)
    config = serve_config.model_copy(update={"target": two})
    grouped = open_service(config)

    async def told(of: Service) -> tuple[str, list[Any]]:
        body = {"model": MODEL, "prompt": "hello", "temperature": 1, "seed": 3, "stream": True}
        watched = body | {"maskahead": {"events": True}}
        job = of.completion_job(CompletionRequest.model_validate(watched))
        deltas = [delta async for _, delta in of.run(job)]
        seen = [(each.round, each.sight) for delta in deltas for each in delta.rounds]
        return "".join(delta.text for delta in deltas), seen

    async def run() -> tuple[Any, Any, EngineStats]:
        return await told(grouped), await told(service), await grouped.backend.stats()

    try:
        with_two, with_one, stats = asyncio.run(run())
    finally:
        grouped.backend.close()
    assert with_two[0] == with_one[0]
    assert [round for round, _ in with_two[1]] == [round for round, _ in with_one[1]]
    assert shapes(with_two[1]) == shapes(with_one[1])
    assert (stats.running, stats.waiting) == (0, 0)
    assert stats.commits == sum(len(step) for round, _ in with_two[1] for step in round.steps)


def shapes(seen: list[Any]) -> list[Any]:
    """The draft trees without their masses, which two ranks add up in another order."""
    trees = [sight.tree if sight else () for _, sight in seen]
    return [[(node.parent, node.fills, node.accepted) for node in tree] for tree in trees]


def test_a_deployed_group_has_its_ranks_in_the_replicas_own_placement(
    url: str, serve_config: ServeConfig, client: openai.AsyncOpenAI
) -> None:
    two = TargetConfig(path=serve_config.target.path, dtype="float64", tp=2)
    config = serve_config.model_copy(update={"target": two})
    before = rooms()
    serve.run(serve_application(config), name="two", route_prefix="/two")
    try:
        fields: dict[str, Any] = {"model": MODEL, "prompt": "hello", "temperature": 1, "seed": 3}
        there = openai.OpenAI(base_url=url.replace("/v1", "/two/v1"), api_key="none")
        answer = there.completions.create(**fields)
        here = asyncio.run(client.completions.create(**fields))
        new = [size for name, size in rooms().items() if name not in before]
    finally:
        serve.delete("two")
    assert answer.choices == here.choices
    assert new == [3], "the replica and its two ranks"


def rooms() -> dict[str, int]:
    """How many bundles every placement group holds that there is, by its id."""
    held: Any = placement_group_table()
    return {name: len(room["bundles"]) for name, room in held.items() if room["state"] == "CREATED"}


def test_what_another_has_or_nobody_is_refused(url: str, serve_config: ServeConfig) -> None:
    on_gpu = TargetConfig(path=serve_config.target.path, device="cuda")
    with (
        pytest.raises(ValueError, match="0 GPUs"),
        serving(ServeConfig(target=on_gpu), "127.0.0.1", 0),
    ):
        pass
    taken = int(url.split(":")[2].split("/")[0])
    with (
        pytest.raises(ValueError, match=f"port {taken}"),
        serving(serve_config, "127.0.0.1", taken),
    ):
        pass
    with (
        pytest.raises(ValueError, match="applications: maskahead"),
        serving(serve_config, "127.0.0.1", 0),
    ):
        pass
    assert httpx.get(url.replace("/v1", "/readyz")).status_code == 200
