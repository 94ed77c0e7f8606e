"""Who joins the running batch next, and who leaves it when memory is short.

The policy, for requests in the order of their arrival:

- They join in that order, as far as the batch has places and the prefix cache has room: for their
  text, their next blocks, and a growth of every request under way, lest it be parked at once.
- One that finds no room is passed by later ones that do, but by ``MOST_PASSED`` of them at most;
  then nobody joins before it. So short requests do not wait behind a long one, and a long one does
  not wait for ever.
- When requests under way outgrow the memory, the youngest is parked. Nobody passes it; it goes on
  where it was. The oldest is never parked, so there is always one that gets to its end.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

MOST_PASSED = 16


@dataclass
class Place:
    """One request's place in the line."""

    number: int
    """Of its arrival."""
    need: int
    """Tokens of prefix cache that it joins with."""
    passed: int = 0
    """So many later ones have joined before it."""

    def unpassable(self) -> "Place":
        """The place of a parked request."""
        return replace(self, passed=MOST_PASSED)


def next_to_join(line: Sequence[Place], room: int) -> int | None:
    """The index of the place whose request joins next where ``room`` tokens are free; those before
    it are passed. ``line`` is in the order of arrival."""
    for index, place in enumerate(line):
        if place.need <= room:
            for earlier in line[:index]:
                earlier.passed += 1
            return index
        if place.passed >= MOST_PASSED:
            return None
    return None


def to_park(needs: Sequence[int], tokens: int) -> int:
    """How many of the youngest requests under way must leave so that the others' ``needs``, in the
    order of arrival, fit into ``tokens``."""
    count = 0
    while sum(needs[: len(needs) - count]) > tokens:
        count += 1
    assert count < max(len(needs), 1), "the oldest fits: what cannot was refused"
    return count
