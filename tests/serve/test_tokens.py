"""Clients count tokens as the target does."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from serve.service import Service
from tests.serve.conftest import MODEL

MESSAGES = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "grüß dich"}]


def post(http: httpx.AsyncClient, path: str, **body: Any) -> httpx.Response:
    return asyncio.run(http.post(path, json=body))


def test_text_comes_back_from_its_tokens(http: httpx.AsyncClient, service: Service) -> None:
    text = "hello, grüß dich 🙂 <|im_end|>"
    found = post(http, "/tokenize", model=MODEL, prompt=text, return_token_strs=True).json()
    assert found["tokens"] == list(service.codec.encode(text))
    assert found["count"] == len(found["tokens"]) == len(found["token_strs"])
    assert found["max_model_len"] == service.spec.max_positions
    back = post(http, "/detokenize", tokens=found["tokens"]).json()
    assert back == {"prompt": text}


def test_a_conversation_has_the_tokens_that_its_answer_is_billed_for(
    http: httpx.AsyncClient,
) -> None:
    counted = post(http, "/tokenize", messages=MESSAGES, add_generation_prompt=True).json()
    answer = post(http, "/v1/chat/completions", model=MODEL, messages=MESSAGES, max_tokens=0)
    assert answer.json()["usage"]["prompt_tokens"] == counted["count"]
    assert counted["token_strs"] is None


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/tokenize", {}, 400, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": MESSAGES}, 400, "prompt"),
        ("/tokenize", {"prompt": "a", "add_special_tokens": True}, 400, "add_special_tokens"),
        ("/tokenize", {"prompt": "a", "texts": 1}, 400, "texts"),
        ("/tokenize", {"prompt": "a", "model": "gpt"}, 404, "model"),
        ("/detokenize", {"tokens": [300]}, 400, "tokens"),
        ("/detokenize", {"tokens": [-1]}, 400, "tokens"),
        ("/detokenize", {"tokens": "a"}, 400, "tokens"),
        ("/detokenize", {"tokens": [1], "model": "gpt"}, 404, "model"),
    ],
)
def test_anything_else_is_refused_by_name(
    http: httpx.AsyncClient, path: str, body: dict[str, Any], status: int, param: str
) -> None:
    response = post(http, path, **body)
    assert response.status_code == status
    assert response.json()["error"]["param"] == param


def test_a_long_text_is_read_beside_the_event_loop(
    http: httpx.AsyncClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes seconds, in which nobody else would be answered."""
    at_once: list[bool] = []

    def watched(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def call(value: Any) -> Any:
            at_once.append(threading.current_thread() is threading.main_thread())
            return read(value)

        return call

    for name in ("encode", "spell"):
        monkeypatch.setattr(service.codec, name, watched(getattr(service.codec, name)))
    for text in ("hello", "hello " * 4000):
        messages = [{"role": "user", "content": text}]
        post(http, "/tokenize", prompt=text)
        post(http, "/detokenize", tokens=[5] * len(text))
        post(http, "/v1/completions", model=MODEL, prompt=text, max_tokens=1)
        post(http, "/v1/chat/completions", model=MODEL, messages=messages, max_tokens=1)
    many = [{"role": "user", "content": ""}] * 1000  # a template writes around each
    post(http, "/v1/chat/completions", model=MODEL, messages=many, max_tokens=1)
    assert at_once == [True] * 4 + [False] * 5
