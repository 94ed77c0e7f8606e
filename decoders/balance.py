"""Whether drafting pays: decided before a drafter's cost is spent, from what earlier drafted rounds
gained. While they gained nothing, rare trials look again.
"""

from collections import deque
from dataclasses import dataclass, field
from statistics import median

from decoders.reliability import Reliability

FIRST, MOST = 4, 32
"""Drafts that a request is asked for at first, and at most: trees cost by the node."""
MEMORY = 0.97
"""What a running mean keeps of itself in a round."""
TIMINGS = 9
"""Latest proposals of which the median counts: first calls and pauses are no price."""
TRIAL = 8
"""Drafted rounds in a row that are judged together: one round's luck says nothing."""
STAKE = 2.0
"""Steps that the first trial may lose before it ends early; a later one may lose none."""
SHORTEST_WAIT, LONGEST_WAIT = 4, 256
"""Rounds until a trial begins; the wait doubles with every trial that fails."""
LASTING = 64
"""After so many drafted rounds in a row one is plain, lest the price of those be forgotten, and the
next wait is short again."""


@dataclass
class Balance:
    """What is known of drafting for one kind of request; a round counts once, however many take
    part."""

    reliability: Reliability = field(default_factory=Reliability)
    advantage: float = 0.0
    """Mean of a drafted round's gain over a plain one, in steps a request: of the last trial, then
    a running one."""
    rounds: int = 0
    """Drafted rounds in a row, the trial's included."""
    trying: bool = False
    stake: float = STAKE
    """Steps that the next trial, or the present one, may lose."""
    wait: int = SHORTEST_WAIT
    idle: int = 0
    """Rounds since the last trial, or since the last plain round."""
    limit: int = FIRST
    proposals: int = 0
    expected: float = 0.0
    """So many of all verified drafts were expected to be accepted."""
    accepted: int = 0
    """So many were."""
    verified: int = 0
    """Requests times rounds with drafts."""
    _timings: deque[float] = field(default_factory=lambda: deque(maxlen=TIMINGS))

    @property
    def drafter_seconds(self) -> float:
        """What proposing for one more request costs."""
        return median(self._timings) if self._timings else 0.0

    def proposed(self, seconds: float) -> None:
        """A request's share of a proposal; the first one loads and compiles, and is left out."""
        self.proposals += 1
        if self.proposals > 1:
            self._timings.append(seconds)

    def admits(self) -> bool:
        """Whether the next round should draft; counts the rounds that do not."""
        if self.trying:
            return True
        if self.advantage > 0:
            self.idle = (self.idle + 1) % LASTING
            return self.idle > 0
        self.idle += 1
        if self.idle < self.wait:
            return False
        self.trying = True
        self.advantage, self.rounds, self.idle = 0.0, 0, 0
        self.limit = FIRST
        return True

    def settle(self, advantage: float, most_taken: int) -> None:
        """Take in a drafted round; the limit follows what was taken, with room to grow while that
        gains."""
        self.rounds += 1
        keep = min(MEMORY, 1 - 1 / self.rounds)
        self.advantage = keep * self.advantage + (1 - keep) * advantage
        lost = -self.advantage * self.rounds
        self.trying = self.trying and self.rounds < TRIAL and lost < self.stake
        if not self.trying and self.advantage <= 0:
            self.stake, self.idle = 0.0, 0
            lasted = self.rounds >= LASTING
            self.wait = SHORTEST_WAIT if lasted else min(2 * self.wait, LONGEST_WAIT)
        room = 2 * most_taken + 2 if advantage > 0 else most_taken
        self.limit = max(min(MOST, room), int(0.9 * self.limit), FIRST)
