"""Prompt rows: what is accepted, what wins, what decides the noise."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from pydantic import ValidationError

from decoders.engine import Engine
from decoders.loop import Decoder
from decoders.noise import row_seed
from decoders.options import DecodeOptions
from decoders.prompts import PromptRow, build_request
from decoders.request import Request
from models.target import Target
from models.text import TextCodec, open_codec, save_tokenizer, train_tokenizer
from tests.conftest import tiny_model

OPTIONS = DecodeOptions(method="chain", budget=3, temperature=0.7, max_new_tokens=5, seed=11)


@pytest.fixture(scope="module")
def codec(tmp_path_factory: pytest.TempPathFactory) -> TextCodec:
    folder = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(train_tokenizer(["one two three"] * 3, 280), folder)
    found = open_codec(folder)
    assert found is not None
    return found


def row(**values: object) -> PromptRow:
    return PromptRow.model_validate({"id": "a", "prompt_ids": [5, 6]} | values)


def test_a_rows_own_values_win() -> None:
    request = build_request(row(max_new_tokens=0, temperature=0.0, seed=3), OPTIONS, None)
    assert request.options.max_new_tokens == 0
    assert request.options.temperature == 0
    assert request.noise_seed == 3
    assert request.options.budget == 3


def test_without_own_values_the_options_and_the_hash_of_seed_and_id_count() -> None:
    request = build_request(row(), OPTIONS, None)
    assert request.options == OPTIONS
    assert request.noise_seed == row_seed(11, "a")
    assert request.prompt_ids == (5, 6)


def test_a_zero_seed_is_a_seed() -> None:
    assert build_request(row(seed=0), OPTIONS, None).noise_seed == 0


def test_integer_ids_are_names() -> None:
    assert row(id=7).id == "7"


def test_other_keys_are_left_alone() -> None:
    assert row(gold=["42"], kind="words").id == "a"


def test_a_prompt_of_no_tokens_is_a_prompt() -> None:
    assert build_request(row(prompt_ids=[]), OPTIONS, None).prompt_ids == ()


@pytest.mark.parametrize(
    "values",
    [
        {"id": ""},
        {"id": None},
        {"prompt": "both"},
        {"prompt_ids": None},
        {"max_new_tokens": -1},
        {"temperature": -1},
        {"prompt_ids": ["x"]},
        {"prompt_ids": [1.5]},
    ],
    ids=str,
)
def test_bad_rows_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        row(**values)


def test_text_goes_through_the_chat_template(codec: TextCodec) -> None:
    request = build_request(PromptRow(id="a", prompt="one two"), OPTIONS, codec)
    expected = "<|im_start|>user\none two<|im_end|>\n<|im_start|>assistant\n"
    assert request.prompt_ids == codec.encode(expected)
    assert codec.tokenizer.decode(list(request.prompt_ids)) == expected


def test_text_without_a_tokenizer_is_refused_by_row() -> None:
    with pytest.raises(ValueError, match=r"prompt of a: .*no tokenizer"):
        build_request(PromptRow(id="a", prompt="hello"), OPTIONS, None)


@pytest.mark.parametrize("ids", [(24,), (-1,), (4, 3, 4)], ids=str)
def test_ids_that_are_no_text_tokens_are_refused(tiny_target: Target, ids: Sequence[int]) -> None:
    with pytest.raises(ValueError, match=r"prompt_ids of a: .* is not a text token"):
        Decoder(tiny_target, {}).add(Request("a", tuple(ids), DecodeOptions()))
    assert not tiny_target.caches


def test_a_prompt_beyond_the_targets_positions_is_refused(tiny_target: Target) -> None:
    fits = Request("a", (5,) * 500, DecodeOptions(max_new_tokens=12))
    Decoder(tiny_target, {}).add(fits)
    with pytest.raises(ValueError, match="513 positions"):
        Decoder(tiny_target, {}).add(Request("a", (5,) * 501, DecodeOptions(max_new_tokens=12)))


def test_an_id_in_use_and_a_missing_drafter_are_refused(tiny_target: Target) -> None:
    decoder = Decoder(tiny_target, {})
    decoder.add(Request("a", (5,), DecodeOptions()))
    with pytest.raises(ValueError, match="'a' is already being decoded"):
        decoder.add(Request("a", (5,), DecodeOptions()))
    with pytest.raises(ValueError, match="chain: its drafter is not loaded"):
        decoder.add(Request("b", (5,), DecodeOptions(method="chain")))


def test_output_rows_follow_the_order_of_the_prompts(
    tiny_folder: Path, tiny_target: Target
) -> None:
    engine = Engine(tiny_folder, tiny_target, {})
    limits = {"d": 8, "b": 6, "c": 4, "a": 2}
    rows = [row(id=name, prompt_ids=[5] * n, max_new_tokens=n) for name, n in limits.items()]
    out = engine.generate(rows, DecodeOptions(batch_size=2, ignore_stop=True), trace=True)
    assert {r["id"]: len(r["token_ids"]) for r in out} == limits
    assert [r["id"] for r in out] == list(limits)
    assert [r["text"] for r in out] == [None] * 4
    assert " ".join(out[0]) == (
        "id prompt_ids token_ids text stop_reason nfe forwards tokens_per_forward "
        "accepted_per_round seconds rounds"
    )
    assert set(out[0]["rounds"][1]) == {"kind", "drafts", "accepted", "steps"}


def test_results_do_not_depend_on_a_rows_place_in_the_file(
    tiny_folder: Path, tiny_target: Target
) -> None:
    engine = Engine(tiny_folder, tiny_target, {})
    rows = [row(id=name) for name in "abcd"]
    options = DecodeOptions(temperature=1.0, max_new_tokens=6)
    forth = {r["id"]: r["token_ids"] for r in engine.generate(rows, options)}
    back = {r["id"]: r["token_ids"] for r in engine.generate(rows[::-1], options)}
    assert forth == back
    assert len({tuple(ids) for ids in forth.values()}) > 1


def test_two_rows_of_one_id_are_refused(tiny_folder: Path) -> None:
    engine = Engine(tiny_folder, Target(tiny_model()), {})
    with pytest.raises(ValueError, match="id 'a' stands on more than one row"):
        engine.requests([row(), row(prompt_ids=[7])], OPTIONS)
