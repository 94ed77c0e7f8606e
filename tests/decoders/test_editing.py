"""Threshold decoding that edits (LLaDA2.1): filled tokens change while their block is active, for a
bounded number of forwards, and nothing counts before its block is settled."""

from collections import Counter
from functools import cache
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from actors.jobs import record_traces
from decoders.loop import Decoder
from decoders.options import METHODS, DecodeOptions
from decoders.request import Request, Result
from decoders.trace import TraceRecorder
from models.config import TargetConfig
from models.opening import open_target
from models.target import Target
from models.transformer import Transformer
from tests.conftest import tiny_model
from tests.reference.editing import naive_editing_decode
from tests.reference.families import family_spec
from tests.reference.grid import BLOCK, cut
from tests.reference.running import commits, outcome, prompt_of, run, run_one, with_stops

FAMILIES = ["sdar", "llada2_moe", "Dream"]
LIMIT = 11


@cache
def model_of(family: str, dtype: torch.dtype = torch.float64) -> Transformer:
    return tiny_model(family_spec(family), dtype)


def editing(**values: object) -> DecodeOptions:
    """Low thresholds, so that the random network changes its mind often."""
    base = {"method": "threshold", "tau": 0.1, "edit_tau": 0.08, "max_new_tokens": LIMIT}
    return DecodeOptions.model_validate(base | values)


def free(**values: object) -> DecodeOptions:
    return editing(ignore_stop=True, **values)


def request_of(length: int, **values: object) -> Request:
    return Request(str(length), prompt_of(length), editing(**values), length)


def blocks_of(result: Result) -> list[list[dict[int, int]]]:
    """Every block's steps, by the block that their forward had active."""
    found: list[list[dict[int, int]]] = []
    for round in result.rounds:
        if round.kind == "open":
            found.append([])
        if round.kind in ("open", "step"):
            found[-1].append(dict(round.steps[0]))
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_it_equals_the_naive_twin_commit_by_commit(family: str) -> None:
    replaced = 0
    for length, passes in [(0, 16), (3, 2), (6, 1), (7, 0)]:
        for temperature, confidence in [(0.0, "top1"), (1.0, "chosen")]:
            request = request_of(
                length,
                edit_passes=passes,
                temperature=temperature,
                confidence=confidence,
                ignore_stop=length % 2 == 0,
            )
            model = model_of(family)
            expected = naive_editing_decode(model, request.prompt_ids, request.options, length)
            result = run(open_target(model), [request])[str(length)]
            assert outcome(result) == (expected.token_ids, expected.stop_reason)
            assert commits(result) == list(expected.steps)
            replaced += sum(map(len, commits(result))) - result.commits
    assert replaced > 5, "tokens were replaced"


def test_passes_over_a_full_block_are_bounded_and_end_when_nothing_changes() -> None:
    """With a threshold of 0 the random network never comes to rest everywhere."""
    ends: Counter[str] = Counter()
    for length in range(0, 10, 3):
        for most in (0, 1, 5):
            request = request_of(length, edit_tau=0.0, edit_passes=most, ignore_stop=True)
            result = run(Target(model_of("sdar")), [request])[str(length)]
            filled = set(range(length))
            for steps in blocks_of(result):
                passes: list[dict[int, int]] = []
                start = min(steps[0]) // BLOCK * BLOCK
                for step in steps:
                    if filled.issuperset(range(start, start + BLOCK)):
                        passes.append(step)
                    filled |= step.keys()
                assert len(steps) - len(passes) <= BLOCK
                assert len(passes) <= most
                assert all(passes[:-1]), "a pass that changes nothing is the last one"
                if len(passes) < most:
                    assert not passes[-1]
                ends["rest" if passes and not passes[-1] else "bound"] += 1
    assert ends["rest"]
    assert ends["bound"]


def test_the_prompt_is_never_edited() -> None:
    for length in (1, 2, 3, 5, 6, 7):
        request = request_of(length, edit_tau=0.0)
        result = run(Target(model_of("sdar")), [request])[str(length)]
        assert min(position for step in commits(result) for position, _ in step) >= length


def test_a_smaller_limit_gives_a_prefix_and_a_stop_id_cuts_the_settled_text() -> None:
    """A block counts when it is settled: limits and stop ids within it change nothing before."""
    edited_away = 0
    for length in (0, 6):
        whole = run_one(Target(model_of("sdar")), prompt_of(length), free(), length)
        for limit in (1, 4, 7):
            shorter = free(max_new_tokens=limit)
            found = run_one(Target(model_of("sdar")), prompt_of(length), shorter, length)
            assert outcome(found) == (whole.token_ids[:limit], "length")
        written = {token for step in commits(whole) for _, token in step}
        for stop in sorted(written)[::2]:
            target = with_stops(model_of("sdar"), (stop,))
            found = run_one(target, prompt_of(length), editing(), length)
            assert outcome(found) == cut(whole.token_ids, LIMIT, (stop,))
        edited_away += len(written - set(whole.token_ids))
    assert edited_away, "a stop id that was replaced did not stop"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_a_request_in_a_batch_equals_the_request_alone(dtype: torch.dtype) -> None:
    requests = [request_of(length, temperature=length / 4) for length in range(0, 6, 2)]
    plain = DecodeOptions(method="standard", max_new_tokens=LIMIT)
    requests.append(Request("plain", prompt_of(4), plain))
    for family in ("sdar", "Dream"):
        target = open_target(model_of(family, dtype))
        alone, together = run(target, requests), run(target, requests, batch_size=4)
        for request in requests:
            assert outcome(together[request.id]) == outcome(alone[request.id])
            assert together[request.id].rounds == alone[request.id].rounds


def test_what_a_stream_has_shown_never_changes() -> None:
    request = request_of(6, ignore_stop=True)
    decoder = Decoder(Target(model_of("sdar")), {})
    shown: list[tuple[int, ...]] = [()]
    sequence, results = decoder.add(request), []
    while decoder.active:
        results += decoder.step()
        shown.append(sequence.text_so_far())
    assert shown[-1] == results[0].token_ids
    assert all(shown[-1][: len(text)] == text for text in shown)
    assert len(set(shown)) > 2, "it grows by settled blocks"


def test_one_is_off() -> None:
    for length in (0, 5):
        plain = DecodeOptions(method="threshold", tau=0.1, max_new_tokens=LIMIT)
        results = [
            run_one(Target(model_of("sdar")), prompt_of(length), options, length)
            for options in (plain, editing(edit_tau=1.0, edit_passes=3))
        ]
        assert results[0].rounds == results[1].rounds
        assert plain.commit_rule() == editing(edit_tau=1.0).commit_rule()


def test_an_edited_token_counts_once_per_position() -> None:
    result = run_one(Target(model_of("sdar")), prompt_of(4), free(edit_tau=0.0), 4)
    assert result.commits == len({p for step in commits(result) for p, _ in step})
    assert result.commits < sum(map(len, commits(result)))
    assert result.tokens_per_forward == result.commits / result.nfe


@pytest.mark.parametrize("method", [m for m in METHODS if m != "threshold"])
@pytest.mark.parametrize("field", ["edit_tau", "edit_passes"])
def test_other_methods_refuse_its_options_by_name(method: str, field: str) -> None:
    with pytest.raises(ValidationError, match=rf"decode\.{field} is not an option of .*{method}"):
        DecodeOptions.model_validate({"method": method, field: 1})


@pytest.mark.parametrize(
    ("field", "value"), [("edit_tau", 1.2), ("edit_passes", -1), ("edit_passes", 65)]
)
def test_wrong_values_are_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(ValidationError, match=field):
        editing(**{field: value})


def test_no_trace_is_recorded_of_it(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"decode\.edit_tau 0\.08: .* cannot be recorded"):
        run(Target(model_of("sdar")), [request_of(3)], observer=TraceRecorder())
    with pytest.raises(ValueError, match=r"decode\.edit_tau 0\.08"):
        record_traces(TargetConfig(), editing(), tmp_path / "no", tmp_path, lambda *_: None)
