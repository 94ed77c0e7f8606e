"""The text of a growing token sequence, let out only when nothing that follows can change it.

Pieces joined together equal the text of the finished sequence, whatever the rounds were. A stop
string ends the text where it begins; none of it is let out, even when two blocks share it.
"""

from collections.abc import Sequence

from models.text import TextCodec


class TextStream:
    """One request's text. Every call takes *all* ids so far and looks at the new ones; a target
    without a tokenizer has no text, and no stop strings either."""

    def __init__(self, codec: TextCodec | None, stop: Sequence[str] = ()) -> None:
        if "" in stop:
            raise ValueError("stop: a stop string must not be empty")
        self._growing = codec.growing_text() if codec else None
        self._stop = tuple(stop)
        self._num_ids = 0
        self._held = ""
        """Settled text that may be the beginning of a stop string."""
        self.stopped_at: int | None = None
        """How many ids it took to complete a stop string, once one is complete."""

    def grow(self, ids: Sequence[int], final: bool = False) -> str:
        """The text that ``ids`` add to what was let out; everything when they are ``final``."""
        if self._growing is None or self.stopped_at is not None:
            return ""
        pieces = []
        while self._num_ids < len(ids) and self.stopped_at is None:
            self._num_ids += 1
            pieces.append(self._let_out(self._growing.add(ids[self._num_ids - 1])))
        if final and self.stopped_at is None:
            pieces += [self._let_out(self._growing.end()), self._held]
        return "".join(pieces)

    def _let_out(self, settled: str) -> str:
        """What can be shown once ``settled`` follows what is held back."""
        text = self._held + settled
        end = find_stop(text, self._stop)
        if end is not None:
            self.stopped_at, self._held = self._num_ids, ""
            return text[:end]
        end = len(text) - held_back(text, self._stop)
        self._held = text[end:]
        return text[:end]


def find_stop(text: str, stop: Sequence[str]) -> int | None:
    """Where the stop string that is complete first begins (the longest when two end together)."""
    starts = [(text.find(word), len(word)) for word in stop]
    ends = [(start + length, start) for start, length in starts if start >= 0]
    return min(ends)[1] if ends else None


def held_back(text: str, stop: Sequence[str]) -> int:
    """How many characters at the end of ``text``, in which no stop string is complete, may be the
    beginning of one."""
    for start in range(len(text)):
        if any(word.startswith(text[start:]) for word in stop):
            return len(text) - start
    return 0
