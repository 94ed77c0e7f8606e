"""Text is let out piece by piece; the pieces are the whole, whatever the cuts."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.text_stream import TextStream
from models.text import TextCodec
from models.token_bytes import WholeText
from tests.text_target import VOCAB_SIZE, save_text_target


@pytest.fixture(scope="module")
def codec(tmp_path_factory: pytest.TempPathFactory) -> TextCodec:
    return TextCodec(save_text_target(tmp_path_factory.mktemp("text") / "tiny"))


def pieces(stream: TextStream, ids: tuple[int, ...], cuts: list[int]) -> list[str]:
    """What comes out when the ids grow to each of ``cuts``, then to their end."""
    grown = [stream.grow(ids[:cut]) for cut in sorted(cuts) if stream.stopped_at is None]
    return [*grown, stream.grow(ids, final=True)]


def cut_slowly(text: str, stop: tuple[str, ...]) -> str:
    """Reference: read character by character until a stop string is complete."""
    for end in range(1, len(text) + 1):
        found = [word for word in stop if text[:end].endswith(word)]
        if found:
            return text[: end - max(map(len, found))]
    return text


# With special tokens, which have no text, and ids of a padded vocabulary, which are nothing.
IDS = st.lists(st.integers(0, VOCAB_SIZE + 5), max_size=30).map(tuple)
CUTS = st.lists(st.integers(0, 30), max_size=8)


@given(ids=IDS, cuts=CUTS)
def test_pieces_join_to_the_whole_text(
    codec: TextCodec, ids: tuple[int, ...], cuts: list[int]
) -> None:
    assert "".join(pieces(TextStream(codec), ids, cuts)) == codec.decode(ids)


@given(ids=IDS, cuts=CUTS)
def test_other_tokenizers_are_read_from_the_start_to_the_same_text(
    codec: TextCodec, ids: tuple[int, ...], cuts: list[int]
) -> None:
    stream = TextStream(codec)
    stream._growing = WholeText(codec.decode)
    assert "".join(pieces(stream, ids, cuts)) == codec.decode(ids)


def test_each_token_is_looked_at_once(codec: TextCodec, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = codec.encode("hello world, grüß dich 🙂 " * 20)
    looked: list[int] = []
    bytes_of = codec.bytes_of
    monkeypatch.setattr(codec, "bytes_of", lambda token: looked.append(token) or bytes_of(token))
    stream = TextStream(codec, ("never said",))
    assert "".join(pieces(stream, ids, list(range(0, len(ids), 3)))) == codec.decode(ids)
    assert looked == list(ids)


@given(ids=IDS)
def test_the_bytes_of_tokens_in_a_row_are_their_text(
    codec: TextCodec, ids: tuple[int, ...]
) -> None:
    plain = b"".join(codec.bytes_of(token) for token in ids)
    assert plain.decode(errors="replace") == codec.spell(ids)


@given(text=st.text("abc é", max_size=20), cuts=CUTS, data=st.data())
def test_text_ends_before_the_first_complete_stop_string_wherever_rounds_end(
    codec: TextCodec, text: str, cuts: list[int], data: st.DataObject
) -> None:
    stop = tuple(data.draw(st.lists(st.text("abc é", min_size=1, max_size=4), max_size=3)))
    ids = codec.encode(text)
    stream = TextStream(codec, stop)
    out = "".join(pieces(stream, ids, cuts))
    expected = cut_slowly(text, stop)
    assert out == expected
    assert (stream.stopped_at is None) == (expected == text and not any(s in text for s in stop))


@given(text=st.text("abc", min_size=4, max_size=20), cuts=CUTS)
def test_ids_up_to_a_stop_string_do_not_depend_on_the_rounds(
    codec: TextCodec, text: str, cuts: list[int]
) -> None:
    ids, stop = codec.encode(text), (text[1:3],)
    whole, split = TextStream(codec, stop), TextStream(codec, stop)
    pieces(whole, ids, [])
    pieces(split, ids, cuts)
    assert whole.stopped_at == split.stopped_at


def test_a_character_is_held_back_until_its_last_byte(codec: TextCodec) -> None:
    ids = codec.encode("a🦉b")
    assert len(ids) > 3, "the owl takes several tokens"
    stream = TextStream(codec)
    out = [stream.grow(ids[:count]) for count in range(1, len(ids) + 1)]
    assert [piece for piece in out if piece] == ["a", "🦉", "b"]


def test_broken_bytes_come_out_at_the_end(codec: TextCodec) -> None:
    ids = codec.encode("a🦉")[:-1]
    stream = TextStream(codec)
    assert stream.grow(ids) == "a"
    assert stream.grow(ids, final=True) == codec.decode(ids)[1:]


def test_an_empty_stop_string_is_refused(codec: TextCodec) -> None:
    with pytest.raises(ValueError, match="empty"):
        TextStream(codec, ("",))


def test_a_stop_string_of_any_length_holds_up_nobody(codec: TextCodec) -> None:
    """A client chooses it, and the thread that looks for it decodes for all."""
    text = "hello world, " * 8
    stream = TextStream(codec, (f"{text}{'x' * 300_000}", "world, " + "o" * 300_000))
    started = time.process_time()
    assert "".join(pieces(stream, codec.encode(text), [5, 9])) == text
    assert time.process_time() - started < 5
