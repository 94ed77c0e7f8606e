"""Tokenizers: text comes back as it went in, and the chat template is the checkpoint's."""

from pathlib import Path
from typing import Literal

import pytest
from tokenizers import Tokenizer

from models.text import (
    MASK_ID,
    MESSAGE_END_ID,
    MESSAGE_START_ID,
    PAD_ID,
    SPECIAL_TOKENS,
    TextCodec,
    chat_text,
    open_codec,
    save_tokenizer,
    train_tokenizer,
)

TEXTS = [
    "Mia has 12 apples and buys 30 more.\nShe now has 12 + 30 = 42 apples.\n#### 42",
    "def double(x):\n    return x * 2\n\nassert double(21) == 42",
] * 5


@pytest.fixture(scope="module", params=["digits", "spaces"])
def codec(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TextCodec:
    folder = tmp_path_factory.mktemp(request.param)
    save_tokenizer(train_tokenizer(TEXTS, 320, request.param), folder)
    found = open_codec(folder)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "text",
    [TEXTS[0], TEXTS[1], "", " ", "\n\n    x", "naïve café — 数 😀", "a  b\t c", "1234567890"],
)
def test_text_comes_back_as_it_went_in(codec: TextCodec, text: str) -> None:
    assert codec.decode(codec.encode(text)) == text


def test_special_tokens_have_the_ids_that_the_target_knows(codec: TextCodec) -> None:
    found = [codec.encode(token) for token in SPECIAL_TOKENS]
    assert found == [(PAD_ID,), (MESSAGE_START_ID,), (MESSAGE_END_ID,), (MASK_ID,)]


def test_decoding_leaves_special_tokens_out(codec: TextCodec) -> None:
    ids = codec.encode("apples")
    assert codec.decode((MESSAGE_START_ID, *ids, MESSAGE_END_ID, PAD_ID, MASK_ID)) == "apples"


def test_encoding_adds_nothing(codec: TextCodec) -> None:
    assert codec.encode("") == ()
    assert codec.encode("apples") + codec.encode(" and") == codec.encode("apples and")


def test_chat_messages_follow_the_template_up_to_the_reply(codec: TextCodec) -> None:
    one = codec.encode_chat([{"role": "user", "content": "hello"}])
    assert one == codec.encode(chat_text("hello"))
    assert one[0] == MESSAGE_START_ID
    several = codec.encode_chat(
        [
            {"role": "system", "content": "short"},
            {"role": "user", "content": "1 + 1"},
            {"role": "assistant", "content": "2"},
            {"role": "user", "content": "again"},
        ]
    )
    assert several.count(MESSAGE_START_ID) == 5
    assert several.count(MESSAGE_END_ID) == 4


@pytest.mark.parametrize("cut", ["digits", "spaces"])
def test_digits_are_single_so_that_arithmetic_can_be_learnt(
    cut: Literal["digits", "spaces"],
) -> None:
    tokenizer = train_tokenizer(TEXTS, 320, cut)
    pieces = [tokenizer.decode([i]) for i in tokenizer.encode("12 + 345").ids]
    assert [p.strip() for p in pieces if any(c.isdigit() for c in p)] == list("12345")


def test_the_vocabulary_has_the_size_asked_for_and_every_byte(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(TEXTS, 300, "digits")
    save_tokenizer(tokenizer, tmp_path)
    assert tokenizer.get_vocab_size() == 300
    again = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert again.get_vocab() == tokenizer.get_vocab()


def test_the_same_texts_give_the_same_tokenizer() -> None:
    assert train_tokenizer(TEXTS, 320).to_str() == train_tokenizer(TEXTS, 320).to_str()


def test_a_folder_without_a_tokenizer_has_no_codec(tmp_path: Path) -> None:
    assert open_codec(tmp_path) is None
