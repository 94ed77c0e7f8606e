"""The text of a growing token sequence, let out only when nothing that follows can change it.

Pieces joined together equal the text of the finished sequence, whatever the rounds were. A stop
string ends the text where it begins; none of it is let out, even when two blocks share it.
"""

from collections.abc import Sequence

from models.text import TextCodec

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
"""What a decoder writes for bytes that are no character (yet)."""


class TextStream:
    """One request's text. Every call takes *all* ids so far; a target without a tokenizer has no
    text, and no stop strings either."""

    def __init__(self, codec: TextCodec | None, stop: Sequence[str] = ()) -> None:
        if "" in stop:
            raise ValueError("stop: a stop string must not be empty")
        self._codec = codec
        self._stop = tuple(stop)
        self._num_ids = 0
        self._num_chars = 0
        self.stopped_at: int | None = None
        """How many ids it took to complete a stop string, once one is complete."""

    def grow(self, ids: Sequence[int], final: bool = False) -> str:
        """The text that ``ids`` add to what was let out; everything when they are ``final``."""
        if self._codec is None or self.stopped_at is not None:
            return ""
        text = self._settled(ids, final)
        end = find_stop(text, self._stop)
        if end is not None:
            self.stopped_at = self._count_to_stop(ids, final)
        elif final:
            end = len(text)
        else:
            end = len(text) - held_back(text, self._stop)
        self._num_ids = len(ids)
        new = text[self._num_chars : end]
        self._num_chars += len(new)
        return new

    def _settled(self, ids: Sequence[int], final: bool) -> str:
        assert self._codec is not None
        text = self._codec.decode(ids)
        return text if final else text.rstrip(REPLACEMENT)

    def _count_to_stop(self, ids: Sequence[int], final: bool) -> int:
        """The fewest ids with a whole stop string: a count that does not depend on the rounds."""
        for count in range(self._num_ids + 1, len(ids)):
            if find_stop(self._settled(ids[:count], final=False), self._stop) is not None:
                return count
        return len(ids)


def find_stop(text: str, stop: Sequence[str]) -> int | None:
    """Where the stop string that is complete first begins (the longest when two end together)."""
    starts = [(text.find(word), len(word)) for word in stop]
    ends = [(start + length, start) for start, length in starts if start >= 0]
    return min(ends)[1] if ends else None


def held_back(text: str, stop: Sequence[str]) -> int:
    """How many characters at the end of ``text`` may be the beginning of a stop string."""
    lengths = (
        length
        for word in stop
        for length in range(len(word) - 1, 0, -1)
        if text.endswith(word[:length])
    )
    return max(lengths, default=0)
