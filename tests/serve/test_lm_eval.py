"""What lm-evaluation-harness sends (0.4.13 and older, its API models) is answered, the same in both
forms."""

import asyncio
from typing import Any

import httpx

from serve.service import Service
from tests.serve.conftest import MODEL

MESSAGES = [{"role": "user", "content": "hello"}]
MARKED = [message | {"type": "text"} for message in MESSAGES]
"""As versions before 0.4.12 send them."""
SHARED: dict[str, Any] = {"model": MODEL, "max_tokens": 16, "temperature": 0.0, "seed": 1234}


async def post(http: httpx.AsyncClient, path: str, fields: dict[str, Any]) -> tuple[int, Any]:
    answer = await http.post(path, json=SHARED | fields, headers={"Authorization": "Bearer "})
    return answer.status_code, answer.json()


def test_chat_requests_and_completions_of_token_ids_have_the_same_answer(
    http: httpx.AsyncClient, service: Service
) -> None:
    async def run() -> tuple[tuple[int, Any], tuple[int, Any]]:
        prompt = [list(service.codec.encode_chat(MESSAGES))]
        return (
            await post(http, "/v1/chat/completions", {"messages": MARKED, "stop": []}),
            await post(http, "/v1/completions", {"prompt": prompt, "stop": ["<|endoftext|>"]}),
        )

    chat, completion = asyncio.run(run())
    assert (chat[0], completion[0]) == (200, 200)
    assert chat[1]["choices"][0]["message"]["content"] == completion[1]["choices"][0]["text"]


def test_a_question_for_the_likelihood_of_a_prompt_is_refused_by_name(
    http: httpx.AsyncClient,
) -> None:
    fields = {"prompt": [[5, 6]], "max_tokens": 1, "logprobs": 1, "echo": True}
    status, body = asyncio.run(post(http, "/v1/completions", fields))
    assert status == 400
    assert body["error"]["param"] in ("logprobs", "echo")
