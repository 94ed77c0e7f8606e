"""The benchmark of one running batch: both sides of a ratio answer the same, and its numbers add
up."""

import pytest

from actors.loading import open_engine
from benchmarks.serving_batch import batching_table, drafting_table, measure_batching
from benchmarks.serving_batch import measure_drafting as measure
from benchmarks.serving_runs import Run, answer, batches_of, in_step, opened, speed
from decoders.engine import Engine
from decoders.options import DecodeOptions
from drafters.config import DrafterConfig
from models.config import TargetConfig
from tests.text_target import save_text_target

L = 8
FREE = DecodeOptions(max_new_tokens=12, ignore_stop=True)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    folder = save_text_target(tmp_path_factory.mktemp("text") / "tiny")
    return open_engine(TargetConfig(path=str(folder)), DrafterConfig(), ["chain"])


def test_many_at_once_are_compared_with_the_same_ones_alone(engine: Engine) -> None:
    options = FREE.model_copy(update={"max_new_tokens": 2 * L})
    batches = [in_step(batch, L) for batch in batches_of(engine, "words", 3, 2, options)]
    done: list[int] = []
    row = measure_batching(engine, batches, done.append)
    assert done == [1, 2]
    assert (row["requests"], row["equal"], row["answers"]) == (3, 6, 6)
    together, alone = row["together_tokens_per_second"], row["alone_tokens_per_second"]
    assert row["ratio"] == pytest.approx(together / alone), "the same tokens on both sides"
    assert row["reached"] == pytest.approx(row["ratio"] / row["allowed"])
    assert (row["ratio_low"], row["ratio_high"]) == (None, None), "two batches are too few"
    assert batching_table(row)[1]["equal"] == "6/6"


def test_requests_in_step_take_equally_many_rounds(engine: Engine) -> None:
    options = FREE.model_copy(update={"max_new_tokens": 2 * L})
    (batch,) = (in_step(each, L) for each in batches_of(engine, "words", 4, 1, options))
    with opened(engine, 4) as batching:
        run = answer(batching, batch, clients=4)
    assert [result.nfe for result in run.results] == [2 * L] * 4


def test_drafting_is_compared_with_the_same_requests_draft_free(engine: Engine) -> None:
    batches = batches_of(engine, "words", 4, 2, FREE)
    drafting = DecodeOptions.model_validate(
        {"method": "chain", "budget": "auto", "max_new_tokens": 12, "ignore_stop": True}
    )
    row = measure(engine, batches, 2, drafting, lambda n: None)
    assert (row["requests"], row["equal"], row["answers"]) == (2, 8, 8)
    assert row["nfe_factor"] >= 1
    told = drafting_table([row])[0]
    assert told["ratio"].endswith(" [- -]"), "two batches are too few for an interval"


def test_answers_stand_in_the_order_of_their_requests(engine: Engine) -> None:
    (batch,) = batches_of(engine, "words", 5, 1, FREE)
    with opened(engine, 3) as batching:
        run = answer(batching, batch, clients=3)
    assert [result.request for result in run.results] == batch
    assert run.tokens == 5 * 12
    assert speed([run, Run(run.seconds, run.results)]) == pytest.approx(run.tokens / run.seconds)
