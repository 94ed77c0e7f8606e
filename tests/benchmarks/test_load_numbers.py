"""The numbers of a load run, each against a slow count."""

import math
from itertools import pairwise
from typing import Any

import pytest

from benchmarks.load.client import Question, Sample
from benchmarks.load.config import Limits, endpoint_of, read_config
from benchmarks.load.figures import ecdf
from benchmarks.load.loops import poisson_arrivals
from benchmarks.load.questions import read_questions
from benchmarks.load.summary import compare, percentiles, ratio, span, summarize

SETTINGS: dict[str, Any] = {
    "endpoints": [endpoint_of("url", "http://127.0.0.1:1", ())],
    "loop": "closed",
    "levels": (2.0,),
    "requests": 6,
    "warmup": 1,
    "turns": 2,
    "prompts": None,
    "model": None,
    "max_tokens": 16,
    "temperature": 0.0,
    "seed": 0,
    "timeout": 30.0,
}


def sample(index: int, seconds: float, **fields: Any) -> Sample:
    return Sample(f"{index}", float(index), seconds, **fields)


def test_poisson_arrivals_have_their_rate_and_repeat() -> None:
    arrivals = poisson_arrivals(4000, 5.0, seed=1)
    gaps = [b - a for a, b in pairwise([0.0, *arrivals])]
    assert min(gaps) > 0
    mean = sum(gaps) / len(gaps)
    deviation = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    assert mean == pytest.approx(0.2, rel=0.05)
    assert deviation == pytest.approx(mean, rel=0.06), "exponential: as wide as its mean"
    assert arrivals == poisson_arrivals(4000, 5.0, seed=1) != poisson_arrivals(4000, 5.0, seed=2)


def test_percentiles_lie_between_neighbours() -> None:
    assert percentiles([None, None]) is None
    found = percentiles([4.0, 1.0, None, 3.0, 2.0, 5.0])
    assert found == {"p50": 3.0, "p95": pytest.approx(4.8), "p99": pytest.approx(4.96)}
    xs, ys = ecdf([3.0, 1.0, 2.0, 2.0])
    assert (xs, ys) == ([1.0, 2.0, 2.0, 3.0], [0.25, 0.5, 0.75, 1.0])


def test_every_request_is_an_answer_or_a_counted_error() -> None:
    turns = [
        [
            sample(0, 2.0, first_text=0.5, tokens=4, nfe=2, gaps=(1.0,)),
            sample(1, 1.0, error="timeout"),
        ],
        [
            sample(0, 4.0, first_text=3.0, tokens=1, nfe=1),
            sample(2, 1.0, error="http 503"),
            sample(3, 0.5, error="timeout"),
        ],
    ]
    found = summarize(turns, Limits(first_text=1.0))
    assert found["requests"] == found["answered"] + sum(found["errors"].values()) == 5
    assert found["errors"] == {"timeout": 2, "http 503": 1}
    assert found["duration"] == 2.0 + 4.0
    assert found["tokens_per_second"] == pytest.approx(5 / 6, abs=1e-6)
    assert found["per_token"]["p50"] == pytest.approx(1.5 / 3), "an answer of one token has none"
    assert found["goodput"] == {
        "limits": {"first_text": 1.0},
        "share": 0.2,
        "per_second": pytest.approx(1 / 6, abs=1e-6),
    }
    assert (found["nfe"], found["tokens"]) == (3, 5)


def test_limits_of_all_kinds_count() -> None:
    one = [sample(0, 2.0, first_text=0.5, tokens=4)]
    for limits, share in (({}, 1), ({"per_token": 0.4}, 0), ({"seconds": 2.0}, 1)):
        assert summarize([one], Limits(**limits))["goodput"]["share"] == share
    assert summarize([[sample(0, 1.0, error="cut off")]], Limits())["goodput"]["share"] == 0


def test_a_ratio_is_the_geometric_mean_with_an_interval_around_it() -> None:
    turns = [[(2.0, 1.0)], [(8.0, 1.0), (None, 3.0)], [(4.0, 1.0)], [(1.0, None)]]
    found = ratio(turns, seed=0)
    assert found is not None
    assert found["n"] == 3
    assert found["ratio"] == pytest.approx(4.0)
    assert 2.0 <= found["low"] < 4.0 < found["high"] <= 8.0
    assert ratio(turns, seed=0) == found
    assert ratio([[(3.0, 2.0), (6.0, 4.0)]], seed=0) == {"n": 2, "ratio": 1.5}
    assert ratio([[(None, 1.0)], []], seed=0) is None


def test_requests_of_one_turn_are_no_independent_evidence() -> None:
    """A turn that was slow as a whole says so once, however many requests it had."""
    turns = [[(2.0 if slow else 1.0, 1.0)] for slow in (True, False) * 4]
    once = ratio(turns, seed=0)
    assert once is not None
    assert ratio([pairs * 50 for pairs in turns], seed=0) == once | {"n": 400}


def test_two_endpoints_are_compared_request_by_request_where_both_answered() -> None:
    ours = [[sample(0, 2.0, tokens=4, text="a"), sample(1, 2.0, tokens=4, text="b")]]
    theirs = [[sample(0, 1.0, tokens=4, text="a"), sample(1, 9.0, error="timeout")]]
    found = compare(ours, theirs, seed=0)
    assert (found["pairs"], found["same_text"]) == (1, 1)
    assert found["seconds"]["ratio"] == pytest.approx(2.0)
    rate = (8 / span(ours[0])) / (4 / span(theirs[0]))
    assert found["tokens_per_second"]["ratio"] == pytest.approx(rate)


def test_questions_are_tasks_by_turns_with_seeds_of_their_own() -> None:
    (questions,) = read_questions(read_config(SETTINGS))
    assert len(questions) == 7
    assert len({question.fields["seed"] for question in questions}) == 7
    kinds = ["function" in q.fields["messages"][0]["content"] for q in questions]
    assert kinds == [True, False] * 3 + [True]
    assert [questions] == read_questions(read_config(SETTINGS))
    levels = read_questions(read_config(SETTINGS | {"levels": (1, 2, 4)}))
    assert [len(level) for level in levels] == [7] * 3
    asked = {question.fields["messages"][0]["content"] for level in levels for question in level}
    assert len(asked) == 21, "no prompt comes again: it would be warm"


def test_a_prompts_file_begins_anew_and_keeps_its_own_fields(tmp_path: Any) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(
        '{"id": "a", "prompt": "hi", "max_new_tokens": 3}\n{"id": 2, "prompt_ids": [5]}'
    )
    (found,) = read_questions(read_config(SETTINGS | {"prompts": file}))
    assert [question.id for question in found][:3] == ["0:a", "1:2", "2:a"]
    assert found[0].fields["max_tokens"] == 3
    assert found[1] == Question("1:2", SHARED | {"seed": found[1].fields["seed"], "prompt": [5]})


SHARED = {"max_tokens": 16, "temperature": 0.0}


TWO = [endpoint_of(name, "http://host", ()) for name in ("url", "against")]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"levels": (1.5,)}, "level 1.5 must be a whole number of clients"),
        ({"levels": (0.0,), "loop": "open"}, "level 0 must be requests a second"),
        ({"requests": 0}, "requests: 0"),
        ({"levels": (1, 8)}, "requests 6 must be at least 8 for level 8$"),
        ({"endpoints": TWO, "levels": (4,)}, "at least 8 for level 4 in 2 turns"),
        ({"tasks": ("sums",)}, "task 'sums' is not known; valid: words, code"),
        ({"levels": ()}, "levels"),
    ],
)
def test_wrong_settings_name_field_value_and_choices(changed: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        read_config(SETTINGS | changed)


def test_urls_and_own_fields_are_read() -> None:
    endpoint = endpoint_of("url", "http://host:1/", ("method=chain", "budget=4"))
    assert endpoint.url == "http://host:1/v1"
    assert endpoint.send == {"method": "chain", "budget": 4}
    with pytest.raises(ValueError, match="must begin with http"):
        endpoint_of("url", "host:1", ())
    with pytest.raises(ValueError, match="must be KEY=VALUE"):
        endpoint_of("url", "http://host", ("method",))
    with pytest.raises(ValueError, match=r"send method: '\[chain' is not a YAML value"):
        endpoint_of("url", "http://host", ("method=[chain",))
