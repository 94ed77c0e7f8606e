"""``budget: auto``: whether to draft, and how much, decided in every round from what was measured.

Three things are learnt while decoding, none of which can change an output: how often drafts of a
given mass were accepted (masses are only a proposer's opinion), what proposing costs, and the
running throughput. Whether to draft at all is decided before the drafter's cost is spent, from the
running balance of earlier rounds; while it is negative, rare probes look again.
"""

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from decoders.allotment import allot, closed_masses
from decoders.cost_curve import CostCurve
from decoders.options import DecodeOptions
from decoders.proposers.base import Draft, View
from decoders.state import State

MOST = 32
"""Drafts that a request is asked for at most."""
DEPTHS, BINS = 16, 12
PRIOR = 5.0
"""So many drafts of a cell its own mass stands for before any was seen."""
MEMORY = 0.97
"""What a running mean keeps of itself in a round."""
FIRST_PROBE, LAST_PROBE = 8, 64
"""Rounds between two probes; the wait doubles while drafting does not pay."""


class Reliability:
    """How often drafts were accepted, by their depth (fills beyond the root) and log-mass.

    A proposer may know little of the order: a chain's masses are those of its tokens alone, and
    only depth tells its sure drafts from its hopeless ones.
    """

    def __init__(self) -> None:
        self._accepted = np.zeros((DEPTHS, BINS))
        self._seen = np.zeros((DEPTHS, BINS))

    def observe(self, mass: float, depth: int, accepted: bool) -> None:
        """One verified draft."""
        cell = self._cell(mass, depth)
        self._seen[cell] += 1
        self._accepted[cell] += accepted

    def probability(self, mass: float, depth: int) -> float:
        """The acceptance rate of such drafts; the mass itself while few were seen."""
        cell = self._cell(mass, depth)
        mass = min(max(mass, 0.0), 1.0)
        return float((self._accepted[cell] + PRIOR * mass) / (self._seen[cell] + PRIOR))

    @staticmethod
    def _cell(mass: float, depth: int) -> tuple[int, int]:
        # Bins halve 1 - mass above a half and halve the mass below: both ends matter.
        mass = min(max(mass, 1e-6), 1 - 1e-6)
        half = BINS // 2
        if mass >= 0.5:
            index = half + min(half - 1, int(-np.log2(1 - mass)) - 1)
        else:
            index = half - 1 - min(half - 1, int(-np.log2(mass)) - 1)
        return min(depth, DEPTHS) - 1, index


@dataclass
class Balance:
    """What is known of drafting for one kind of request."""

    reliability: Reliability = field(default_factory=Reliability)
    drafter_seconds: float = 0.0
    """Running mean of a request's share of a proposal."""
    advantage: float = 0.0
    """Running mean of a drafted round's gain over a plain one, in steps."""
    rounds: int = 0
    """Drafted rounds seen."""
    wait: int = FIRST_PROBE
    idle: int = 0
    """Rounds since the last proposal."""
    limit: int = MOST

    def admits(self) -> bool:
        """Whether the next round should draft; counts the rounds that do not."""
        if self.rounds < FIRST_PROBE or self.advantage > 0:
            return True
        self.idle += 1
        if self.idle < self.wait:
            return False
        self.idle = 0
        self.wait = min(2 * self.wait, LAST_PROBE)
        return True

    def settle(self, advantage: float, most_taken: int) -> None:
        """Take in a drafted round; the limit follows what was taken, with room to grow."""
        self.rounds += 1
        keep = min(MEMORY, 1 - 1 / self.rounds)
        self.advantage = keep * self.advantage + (1 - keep) * advantage
        if self.advantage > 0:
            self.wait = FIRST_PROBE
        target = min(MOST, 2 * most_taken + 2)
        self.limit = max(target, int(0.9 * self.limit))


def kind_of(options: DecodeOptions) -> Hashable:
    """Requests that share a balance: one proposer, one rule."""
    return options.method, options.cap, options.temperature, options.coupled


class AutoBudget:
    """The budget of all ``auto`` requests of one target."""

    def __init__(self, measure: Callable[[], CostCurve]) -> None:
        """``measure`` is called when the first ``auto`` request drafts."""
        self._measure = measure
        self._curve: CostCurve | None = None
        self._balances: dict[Hashable, Balance] = {}
        self._steps = 0.0
        self._seconds = 0.0
        self._scale = 1.0

    @property
    def curve(self) -> CostCurve:
        """The measured cost of a forward."""
        if self._curve is None:
            self._curve = self._measure()
        return self._curve

    def balance(self, options: DecodeOptions) -> Balance:
        return self._balances.setdefault(kind_of(options), Balance())

    def admit(self, options: DecodeOptions) -> bool:
        """Whether to spend a drafter on a request in this round."""
        return options.budget != "auto" or self.balance(options).admits()

    def limited(self, view: View) -> View:
        """The view with a budget that a proposer can work with."""
        if view.options.budget != "auto":
            return view
        limit = self.balance(view.options).limit
        return replace(view, options=view.options.model_copy(update={"budget": limit}))

    def proposed(self, options: DecodeOptions, seconds: float) -> None:
        """A request's share of a proposal took so long."""
        balance = self.balance(options)
        keep = MEMORY if balance.drafter_seconds else 0.0
        balance.drafter_seconds = keep * balance.drafter_seconds + (1 - keep) * seconds

    def choose(
        self,
        views: Sequence[View],
        drafts: Sequence[list[Draft]],
        requests: int,
        copies: int,
        prefix: float,
    ) -> list[list[Draft]]:
        """Cut the drafts of ``auto`` requests to what the forward is worth.

        ``requests`` share the forward, which runs over ``copies`` anyway (fixed drafts included)
        behind ``prefix`` tokens in the mean.
        """
        masses = [self._masses(view, found) for view, found in zip(views, drafts, strict=True)]
        room = sum(map(len, masses))
        seconds = self._scale * self.curve.upto(copies + room, prefix)
        plain = requests / max(float(seconds[copies]), 1e-9)
        rate = max(plain, self._steps / self._seconds) if self._seconds else plain
        taken = allot(masses, copies, seconds, rate)
        self._settle(views, masses, taken, copies, seconds, rate)
        return [
            [found[index] for index in indices]
            for found, indices in zip(drafts, taken, strict=True)
        ]

    def _masses(self, view: View, drafts: Sequence[Draft]) -> list[float]:
        reliability = self.balance(view.options).reliability
        free = view.root.count(view.end.mask_id)
        probabilities = [
            reliability.probability(draft.mass, free - draft.state.count(view.end.mask_id))
            for draft in drafts
        ]
        states = [draft.state for draft in drafts]
        return closed_masses(view.root, states, probabilities, view.end.mask_id)

    def _settle(
        self,
        views: Sequence[View],
        masses: Sequence[Sequence[float]],
        taken: Sequence[Sequence[int]],
        copies: int,
        seconds: np.ndarray,
        rate: float,
    ) -> None:
        """Book the expected gain of drafting, the drafter's cost included, to each kind."""
        total = sum(map(len, taken))
        price = seconds[copies + total] - seconds[copies]
        for view, row, indices in zip(views, masses, taken, strict=True):
            balance = self.balance(view.options)
            share = price * len(indices) / total if total else 0.0
            gain = sum(row[index] for index in indices)
            balance.settle(gain - rate * (share + balance.drafter_seconds), len(indices))

    def observe(self, view: View, drafts: Sequence[Draft], reached: Collection[State]) -> None:
        """What became of a request's verified drafts."""
        reliability = self.balance(view.options).reliability
        free = view.root.count(view.end.mask_id)
        for draft in drafts:
            depth = free - draft.state.count(view.end.mask_id)
            reliability.observe(draft.mass, depth, draft.state in reached)

    def passed(
        self, steps: int, seconds: float, forward: float, copies: int, prefix: float
    ) -> None:
        """A round with ``auto`` requests: its steps, its seconds, and those of its forward over
        ``copies`` with the walk behind it."""
        expected = self.curve.at(copies, prefix)
        self._steps = MEMORY * self._steps + steps
        self._seconds = MEMORY * self._seconds + seconds
        ratio = forward / max(expected, 1e-9)
        self._scale = min(max(MEMORY * self._scale + (1 - MEMORY) * ratio, 0.2), 5.0)
