"""The bytes that each token stands for, and text that grows with them, token by token."""

import codecs
from collections.abc import Callable
from typing import Any, Protocol

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
"""What a decoder writes for bytes that are no character (yet)."""


class GrowingText(Protocol):
    """Text of a sequence of tokens, let out once no further token can change it."""

    def add(self, token: int) -> str:
        """The text that one more token settles."""
        ...

    def end(self) -> str:
        """What is left when no token follows."""
        ...


def byte_characters() -> dict[str, int]:
    """The printable characters that byte-level tokenizers write for the 256 bytes (GPT-2)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    characters = {chr(byte): byte for byte in printable}
    return characters | {chr(256 + place): byte for place, byte in enumerate(others)}


_BYTES = byte_characters()


def is_byte_level(tokenizer: Any) -> bool:
    """Whether text is nothing but the tokens' bytes in a row, so that tokens can be read alone."""
    from tokenizers.decoders import ByteLevel

    is_plain = isinstance(tokenizer.backend_tokenizer.decoder, ByteLevel)
    return is_plain and not tokenizer.clean_up_tokenization_spaces


def bytes_of_characters(written: str) -> bytes:
    """Bytes of a byte-level token; one with any other character, an added one, stands for
    itself."""
    if all(character in _BYTES for character in written):
        return bytes(_BYTES[character] for character in written)
    return written.encode()


class ByteText:
    """Text of a byte-level tokenizer: each token is looked at once."""

    def __init__(self, bytes_of: Callable[[int], bytes]) -> None:
        self._bytes_of = bytes_of
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def add(self, token: int) -> str:
        return self._decoder.decode(self._bytes_of(token))

    def end(self) -> str:
        return self._decoder.decode(b"", final=True)


class WholeText:
    """Text of any other tokenizer, decoded from its start with every token."""

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._ids: list[int] = []
        self._num_chars = 0

    def add(self, token: int) -> str:
        self._ids.append(token)
        return self._take(self._decode(self._ids).rstrip(REPLACEMENT))

    def end(self) -> str:
        return self._take(self._decode(self._ids))

    def _take(self, text: str) -> str:
        new = text[self._num_chars :]
        self._num_chars += len(new)
        return new
