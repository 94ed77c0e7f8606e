"""A request's options win over the served ones; what does not fit is refused by name."""

from typing import Any

import pytest

from decoders.options import DecodeOptions
from serve.errors import ApiError
from serve.options import choice_seed, decode_options
from serve.schema import CompletionRequest

SERVED = DecodeOptions(method="order", budget=6, gamma=0.1, cap=0.9, max_new_tokens=50)


def options(room: int = 100, **fields: Any) -> DecodeOptions:
    body = CompletionRequest.model_validate({"model": "m", "prompt": "p"} | fields)
    return decode_options(SERVED, body, room)


def test_a_plain_request_gets_the_served_options() -> None:
    assert options() == SERVED


def test_sampling_fields_win() -> None:
    own = options(temperature=0.7, top_p=0.5, max_tokens=9)
    assert (own.temperature, own.top_p, own.max_new_tokens) == (0.7, 0.5, 9)
    assert (own.method, own.budget, own.gamma, own.cap) == ("order", 6, 0.1, 0.9)


def test_served_options_that_another_method_lacks_fall_away() -> None:
    chain = options(maskahead={"method": "chain", "budget": 3})
    assert chain == DecodeOptions(method="chain", budget=3, cap=0.9, max_new_tokens=50)
    threshold = options(maskahead={"method": "threshold", "tau": 0.5})
    assert threshold == DecodeOptions(method="threshold", tau=0.5, max_new_tokens=50)


@pytest.mark.parametrize(
    ("extension", "param"),
    [
        ({"budgets": 3}, "maskahead.budgets"),
        ({"budget": "many"}, "maskahead.budget"),
        ({"budget": -1}, "maskahead.budget"),
        ({"method": "magic"}, "maskahead.method"),
        ({"method": "standard", "tau": 0.5}, "maskahead"),
        ({"temperature": 1}, "maskahead.temperature"),
    ],
)
def test_options_that_do_not_fit_are_refused_by_name(extension: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        options(maskahead=extension)
    assert (caught.value.status, caught.value.param) == (400, param)


def test_the_room_behind_the_prompt_bounds_the_served_limit_and_not_the_client() -> None:
    assert options(room=7).max_new_tokens == 7
    assert options(room=7, max_tokens=7).max_new_tokens == 7
    with pytest.raises(ApiError) as caught:
        options(room=7, max_tokens=8)
    assert (caught.value.param, caught.value.code) == ("max_tokens", "context_length_exceeded")


def test_the_first_choice_has_the_clients_seed_and_others_have_their_own() -> None:
    seeds = [choice_seed(5, number) for number in range(4)]
    assert seeds[0] == 5
    assert len(set(seeds)) == 4
    assert seeds == [choice_seed(5, number) for number in range(4)]


def test_without_a_seed_every_choice_is_fresh() -> None:
    assert len({choice_seed(None, 0) for _ in range(20)}) == 20
