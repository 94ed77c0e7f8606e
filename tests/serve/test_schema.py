"""Requests as clients send them: neutral values pass, the rest is refused by name."""

from typing import Any

import pytest
from openai.types import chat, completion_create_params
from pydantic import BaseModel, ValidationError

from serve.neutral import CHAT, COMPLETION, LABELS, MESSAGE, Neutral
from serve.schema import ChatRequest, CompletionRequest, Message
from serve.tokens import DetokenizeRequest, TokenizeRequest

COMPLETION_BODY = {"model": "m", "prompt": "p"}
CHAT_BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
MESSAGE_BODY = {"role": "assistant", "content": "hi"}
MANY = {f"x{number}": 0 for number in range(200)}
KINDS = [
    (CompletionRequest, COMPLETION_BODY, COMPLETION),
    (ChatRequest, CHAT_BODY, CHAT),
    (Message, MESSAGE_BODY, MESSAGE),
]


def refused_field(model: type[BaseModel], body: dict[str, Any]) -> str:
    """The field that the (one) error names."""
    with pytest.raises(ValidationError) as caught:
        model.model_validate(body)
    (problem,) = caught.value.errors()
    return problem.get("ctx", {}).get("param") or ".".join(map(str, problem["loc"]))


@pytest.mark.parametrize(("model", "body", "neutral"), KINDS)
def test_neutral_values_change_nothing(
    model: type[BaseModel], body: dict[str, Any], neutral: Neutral
) -> None:
    plain = model.model_validate(body)
    for field, values in neutral.items():
        for value in values:
            assert model.model_validate(body | {field: value}) == plain, field


@pytest.mark.parametrize(("model", "body", "neutral"), KINDS)
def test_other_values_are_refused_by_name(
    model: type[BaseModel], body: dict[str, Any], neutral: Neutral
) -> None:
    for field in neutral:
        assert refused_field(model, body | {field: "something else"}) == field


@pytest.mark.parametrize(("model", "body"), [kind[:2] for kind in KINDS])
def test_unknown_fields_are_named(model: type[BaseModel], body: dict[str, Any]) -> None:
    assert refused_field(model, body | {"top_q": 1}) == "top_q"


@pytest.mark.parametrize(
    ("known", "neutral", "model"),
    [
        (chat.completion_create_params.CompletionCreateParamsBase, CHAT, ChatRequest),
        (completion_create_params.CompletionCreateParamsBase, COMPLETION, CompletionRequest),
    ],
)
def test_every_field_of_openais_client_has_a_place(
    known: type, neutral: Neutral, model: type[BaseModel]
) -> None:
    assert known.__annotations__.keys() <= {*neutral, *LABELS, *model.model_fields}


@pytest.mark.parametrize(("model", "body"), [kind[:2] for kind in KINDS[:2]])
def test_defaults_written_out_equal_defaults(model: type[BaseModel], body: dict[str, Any]) -> None:
    written = {
        "max_tokens": None,
        "n": None,
        "seed": None,
        "stop": None,
        "stream": None,
        "stream_options": None,
        "temperature": None,
        "top_p": None,
        "maskahead": None,
    }
    labels = dict.fromkeys(LABELS, "me")
    assert model.model_validate(body | written | labels) == model.model_validate(body)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("temperature", float("nan")),
        ("temperature", "0"),
        ("top_p", 0),
        ("top_p", 1.1),
        ("n", 0),
        ("n", 129),
        ("n", 1.5),
        ("max_tokens", -1),
        ("seed", "x"),
        ("stop", ["a"] * 17),
        ("stop", ""),
        ("stop", [3]),
        ("stream", "yes"),
        ("stream_options", {"include_usage": True}),
        ("maskahead", 3),
        ("prompt", []),
        ("prompt", [[], "a"]),
        ("prompt", [1, "a"]),
        ("prompt", [True]),
        ("prompt", None),
        ("prompt", "cut amid an emoji: \ud83d"),
        ("prompt", ["a", "\ude42"]),
        ("stop", "\ud83d"),
    ],
)
def test_values_out_of_range_are_refused_by_name(field: str, value: Any) -> None:
    assert refused_field(CompletionRequest, COMPLETION_BODY | {field: value}) == field


@pytest.mark.parametrize(
    ("prompt", "read"),
    [
        ("a", ("a",)),
        ("", ("",)),
        (["a", "b"], ("a", "b")),
        ([1, 2], ((1, 2),)),
        ([[1, 2], [3]], ((1, 2), (3,))),
    ],
)
def test_prompts_come_in_four_forms(prompt: Any, read: tuple[Any, ...]) -> None:
    body = COMPLETION_BODY | {"prompt": prompt}
    assert CompletionRequest.model_validate(body).prompt == read


@pytest.mark.parametrize(("stop", "read"), [("a", ("a",)), (["a", "b"], ("a", "b")), ([], ())])
def test_stop_comes_as_a_string_or_a_list(stop: Any, read: tuple[str, ...]) -> None:
    assert CompletionRequest.model_validate(COMPLETION_BODY | {"stop": stop}).stop == read


def test_either_name_limits_a_chat() -> None:
    def limit(**fields: int) -> int | None:
        return ChatRequest.model_validate(CHAT_BODY | fields).limit

    assert limit() is None
    assert limit(max_tokens=3) == 3
    assert limit(max_completion_tokens=4) == 4
    assert limit(max_tokens=5, max_completion_tokens=5) == 5
    body = CHAT_BODY | {"max_tokens": 3, "max_completion_tokens": 4}
    assert refused_field(ChatRequest, body) == "max_completion_tokens"


def test_text_parts_are_text() -> None:
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    message = Message.model_validate({"role": "developer", "content": parts})
    assert message.for_template() == {"role": "system", "content": "one two"}


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({"role": "tool", "content": "x"}, "messages.0.role"),
        ({"role": "user", "content": None}, "messages.0.content"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "messages.0.content"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages.0.content"),
        ({"role": "user", "content": "\ud83d"}, "messages.0.content"),
        ({"role": "user", "content": "a", "name": "\ud83d"}, "messages.0.name"),
        ({"role": "user", "content": [{"type": "text", "text": 5}]}, "messages.0.content"),
        ({"role": "user"}, "messages.0.content"),
    ],
)
def test_other_messages_are_refused_by_name(message: dict[str, Any], field: str) -> None:
    assert refused_field(ChatRequest, CHAT_BODY | {"messages": [message]}) == field


@pytest.mark.parametrize(
    ("model", "body", "field"),
    [
        (ChatRequest, CHAT_BODY | {"messages": [0] * 3}, "messages.0"),
        (TokenizeRequest, {"messages": [0] * 3}, "messages.0"),
        (DetokenizeRequest, {"tokens": ["a"] * 3}, "tokens.0"),
        (ChatRequest, CHAT_BODY | {"messages": CHAT_BODY["messages"] * 9000}, "messages"),
        (CompletionRequest, COMPLETION_BODY | {"prompt": [[]] * 3000}, "prompt"),
        (ChatRequest, CHAT_BODY | MANY, "x98"),
        (ChatRequest, CHAT_BODY | {"stream": True, "stream_options": MANY}, "x100"),
        (ChatRequest, CHAT_BODY | {"messages": [MANY] * 2}, "x100"),
        (DetokenizeRequest, {"tokens": [1]} | MANY, "x99"),
    ],
)
def test_of_very_many_errors_only_the_first_is_made(
    model: type[BaseModel], body: dict[str, Any], field: str
) -> None:
    """A body has room for millions, which would take gigabytes."""
    assert refused_field(model, body) == field


def test_an_error_repeats_only_the_beginning_of_a_large_value() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}
    for fields in ({"messages": [{"role": "user", "content": [picture]}]}, {"tools": [picture]}):
        with pytest.raises(ValidationError) as caught:
            ChatRequest.model_validate(CHAT_BODY | fields)
        (problem,) = caught.value.errors()
        assert "image_url" in problem["msg"]
        assert len(problem["msg"]) < 400
