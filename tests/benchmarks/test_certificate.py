"""Certificates: equality is counted, and a divergence says how close it was."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from actors.runner import Runner, open_runner
from benchmarks.certificate import certify, divergence_margin
from decoders.options import DecodeOptions
from decoders.prompts import PromptRow
from decoders.rules import cap_log_odds
from decoders.trace import Trace
from drafters.config import DrafterConfig
from models.config import TargetConfig

PROMPTS = [PromptRow(id=str(n), prompt_ids=tuple(range(4, 4 + n))) for n in range(3)]
OPTIONS = DecodeOptions(max_new_tokens=9)


@pytest.fixture(scope="module")
def runner(tiny_folder: Path) -> Any:
    with open_runner(TargetConfig(path=str(tiny_folder)), DrafterConfig(), {"standard"}) as opened:
        yield opened


def rows_and_traces(
    runner: Runner, options: DecodeOptions = OPTIONS
) -> tuple[list[dict[str, Any]], list[Trace]]:
    return list(runner.decode(PROMPTS, options, True)), list(runner.record(PROMPTS, options))


def test_equal_outputs_are_exact_and_need_no_trace(runner: Runner) -> None:
    rows, _ = rows_and_traces(runner)

    def unasked(index: int) -> Trace:
        raise AssertionError

    certificate = certify(DecodeOptions(method="chain"), rows, rows, unasked)
    assert (certificate.kind, certificate.equal, certificate.margin) == ("exact", 3, None)


def test_a_difference_is_counted_with_its_margin(runner: Runner) -> None:
    rows, traces = rows_and_traces(runner)
    changed = [dict(row) for row in rows]
    changed[1]["token_ids"] = [*rows[1]["token_ids"][:-1], 9]
    first = traces[1].blocks[0].states[0]
    ((position, _),) = first.step
    row = first.stale.positions.tolist().index(position)
    steps = [[[position, int(first.stale.candidates[row, 1])]]]
    changed[1]["rounds"] = [{"steps": steps}]
    certificate = certify(DecodeOptions(method="chain"), changed, rows, traces.__getitem__)
    assert (certificate.kind, certificate.equal) == ("differs", 2)
    assert certificate.margin == divergence_margin(traces[1], changed[1]) > 0


@pytest.mark.parametrize("cap", [1.0, 0.5])
def test_the_margin_between_two_positions_is_in_capped_log_odds(runner: Runner, cap: float) -> None:
    _, traces = rows_and_traces(runner, OPTIONS.model_copy(update={"cap": cap}))
    state = traces[0].blocks[0].states[0]
    ranks = np.minimum(state.stale.rank_log_odds, cap_log_odds(cap))
    ((position, token),) = state.step
    other = next(int(p) for p in state.stale.positions if p != position)
    row = {"rounds": [{"steps": [[[other, token]]]}]}
    margin = divergence_margin(traces[0], row)
    assert margin == pytest.approx(float(ranks[position] - ranks[other]))


def test_the_margin_between_two_tokens_is_in_log_probability(runner: Runner) -> None:
    _, traces = rows_and_traces(runner)
    state = traces[0].blocks[0].states[0]
    ((position, _),) = state.step
    scores, candidates = state.stale.scores[position], state.stale.candidates[position]
    row = {"rounds": [{"steps": [[[position, int(candidates[2])]]]}]}
    assert divergence_margin(traces[0], row) == pytest.approx(float(scores[0] - scores[2]))


def test_whatever_reads_kept_keys_is_approximate_even_if_all_is_equal(runner: Runner) -> None:
    rows, traces = rows_and_traces(runner)
    for method in ("standard", "threshold", "chain"):
        options = DecodeOptions(method=method, cache_refresh=2)
        found = certify(options, rows, rows, traces.__getitem__)
        assert (found.kind, found.equal) == ("approximate", 3)
