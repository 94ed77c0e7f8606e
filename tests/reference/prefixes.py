"""Kept blocks by their definition: whole texts up to the end of each block, and when each was last
used."""

from collections.abc import Sequence


class NaivePrefixes:
    """What :class:`decoders.prefix_store.PrefixStore` promises, one text after the other."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.used: dict[tuple[int, ...], int] = {}
        self._now = 0

    def find(self, text: Sequence[int]) -> int:
        """How many kept blocks the text begins with; they are used now."""
        self._now += 1
        kept = 0
        for prefix in self._prefixes(text):
            if prefix not in self.used:
                break
            self.used[prefix] = self._now
            kept += 1
        return kept

    def add(self, text: Sequence[int], most: int) -> None:
        kept = self.find(text)
        missing = self._prefixes(text)[kept:most]
        self.shrink(most - len(missing))
        self.used |= dict.fromkeys(missing, self._now)

    def shrink(self, most: int) -> None:
        """Of equally old blocks the one farthest from the beginning goes first."""
        while len(self.used) > most:
            del self.used[min(self.used, key=lambda prefix: (self.used[prefix], -len(prefix)))]

    def _prefixes(self, text: Sequence[int]) -> list[tuple[int, ...]]:
        size = self.block_size
        return [tuple(text[: end * size]) for end in range(1, len(text) // size + 1)]
