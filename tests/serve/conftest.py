"""A service on a tiny target in this process, and clients that reach it without a socket."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import openai
import pytest

from decoders.options import DecodeOptions
from models.config import TargetConfig
from serve.api import build_api
from serve.app import open_service
from serve.config import ServeConfig
from serve.service import Service
from tests.text_target import save_text_target

MODEL = "tiny"


@pytest.fixture(scope="session")
def text_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny target with a tokenizer; its name is ``MODEL``."""
    return save_text_target(tmp_path_factory.mktemp("text") / MODEL)


@pytest.fixture(scope="session")
def serve_config(text_folder: Path) -> ServeConfig:
    return ServeConfig(
        target=TargetConfig(path=str(text_folder), dtype="float64"),
        decode=DecodeOptions(method="chain", budget=4, max_new_tokens=24),
        max_batch=4,
        max_waiting=8,
    )


@pytest.fixture(scope="module")
def service(serve_config: ServeConfig) -> Iterator[Service]:
    opened = open_service(serve_config)
    yield opened
    opened.backend.close()


@pytest.fixture
def http(service: Service) -> httpx.AsyncClient:
    """Plain HTTP against the service's own application."""
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(build_api(service)), base_url="http://localhost"
    )


@pytest.fixture
def client(http: httpx.AsyncClient) -> openai.AsyncOpenAI:
    """OpenAI's client, unchanged."""
    return openai.AsyncOpenAI(
        base_url="http://localhost/v1",
        api_key="none",
        # Typed as the client's own fork of httpx, with the same interface.
        http_client=http,  # pyright: ignore[reportArgumentType]
        max_retries=0,
    )


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], None]:
    """Wait for a condition, 10 seconds at most."""

    def wait(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    return wait
