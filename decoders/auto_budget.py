"""``budget: auto``: whether to draft, and how much, decided in every round from what was measured.

Two things are learnt while decoding, neither of which can change an output: how often drafts of a
given mass were accepted (masses are only a proposer's opinion), and what proposing costs. Whether
to draft at all is decided before the drafter's cost is spent, from the running balance of earlier
rounds; while it is negative, rare probes look again.
"""

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import numpy as np

from decoders.allotment import best_allotment, closed_masses
from decoders.cost_curve import CostCurve
from decoders.options import DecodeOptions
from decoders.proposers.base import Draft, View
from decoders.state import State

FIRST, MOST = 8, 32
"""Drafts that a request is asked for at first, and at most: trees cost by the node."""
DEPTHS, BINS = 16, 12
PRIOR = 5.0
"""So many drafts of a cell its own mass stands for before any was seen."""
MEMORY = 0.97
"""What a running mean keeps of itself in a round."""
TIMINGS = 9
"""Latest proposals of which the median counts: first calls and pauses are no price."""
TRIAL, FAR_OFF = 16, 2.0
"""After so many rounds a curve that is off by more than this factor is measured anew."""
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
    """What is known of drafting for one kind of request; a round counts once, however many take
    part."""

    reliability: Reliability = field(default_factory=Reliability)
    advantage: float = 0.0
    """Running mean of a drafted round's gain over a plain one, in steps a request."""
    rounds: int = 0
    """Drafted rounds seen."""
    wait: int = FIRST_PROBE
    idle: int = 0
    """Rounds since the last proposal."""
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
        # A probe comes after a long silence, so it weighs as much as the rounds it stands for.
        silent = self.advantage <= 0 and self.rounds > FIRST_PROBE
        keep = 0.5 if silent else min(MEMORY, 1 - 1 / self.rounds)
        self.advantage = keep * self.advantage + (1 - keep) * advantage
        if self.advantage > 0:
            self.wait = FIRST_PROBE
        target = min(MOST, 2 * most_taken + 2)
        self.limit = max(target, int(0.9 * self.limit))


@dataclass
class Level:
    """Running mean of measured over expected seconds; starts as if ``PRIOR`` rounds had agreed."""

    ratio: float = 1.0
    rounds: int = 0

    def take(self, ratio: float) -> None:
        """One round; what no curve explains (a pause, a first call) is bounded."""
        self.rounds += 1
        keep = min(MEMORY, 1 - 1 / (self.rounds + PRIOR))
        self.ratio = keep * self.ratio + (1 - keep) * min(max(ratio, 0.2), 5.0)


def kind_of(options: DecodeOptions) -> Hashable:
    """Requests that share a balance: everything that decides drafts or their acceptance."""
    rule = options.rule() | options.model_dump(include={"gamma", "hedge", "width", "prune"})
    rule |= {"method": options.method, "max_new_tokens": None, "ignore_stop": None}
    return tuple(sorted(rule.items(), key=str))


class AutoBudget:
    """The budget of all ``auto`` requests of one target."""

    def __init__(self, measure: Callable[[bool], CostCurve]) -> None:
        """``measure(False)`` is called in the first round that has an ``auto`` request and may
        return a kept curve; ``measure(True)``, which may not, once more if that does not fit."""
        self._measure = measure
        self._curve: CostCurve | None = None
        self._balances: dict[Hashable, Balance] = {}
        self._plain, self._drafted = Level(), Level()
        self._trusted = False

    @property
    def curve(self) -> CostCurve:
        """The measured cost of a forward."""
        if self._curve is None:
            self._curve = self._measure(False)
        return self._curve

    def balance(self, options: DecodeOptions) -> Balance:
        return self._balances.setdefault(kind_of(options), Balance())

    def admitted(self, options: Iterable[DecodeOptions]) -> dict[Hashable, bool]:
        """For each kind among a round's ``auto`` requests: whether to spend its drafter."""
        kinds = {kind_of(each): self.balance(each) for each in options}
        return {kind: balance.admits() for kind, balance in kinds.items()}

    def limited(self, view: View) -> View:
        """The view with a budget that a proposer can work with."""
        limit = self.balance(view.options).limit
        return replace(view, options=view.options.model_copy(update={"budget": limit}))

    def proposed(self, options: DecodeOptions, seconds: float) -> None:
        """A request's share of its kind's proposal took so long."""
        self.balance(options).proposed(seconds)

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
        curve = self.curve.upto(copies + room, prefix)
        seconds = self._drafted.ratio * curve
        seconds[copies] = self._plain.ratio * curve[copies]
        taken = best_allotment(masses, copies, seconds, requests)
        plain = requests / max(float(seconds[copies]), 1e-9)
        price = float(seconds[copies + sum(map(len, taken))] - seconds[copies])
        self._settle(views, masses, taken, price, plain)
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
        price: float,
        plain: float,
    ) -> None:
        """Book to each kind what drafting gained: the steps that plain forwards would not have made
        (``plain`` a second) in the ``price`` of its copies and its drafter's time."""
        total = sum(map(len, taken))
        gains: dict[Hashable, list[float]] = {}
        counts: dict[Hashable, int] = {}
        for view, row, indices in zip(views, masses, taken, strict=True):
            kind, balance = kind_of(view.options), self.balance(view.options)
            share = price * len(indices) / total if total else 0.0
            gain = sum(row[index] for index in indices)
            balance.expected += gain
            gains.setdefault(kind, []).append(gain - plain * (share + balance.drafter_seconds))
            counts[kind] = max(counts.get(kind, 0), len(indices))
        for kind, found in gains.items():
            self._balances[kind].settle(sum(found) / len(found), counts[kind])

    def observe(self, view: View, drafts: Sequence[Draft], reached: Collection[State]) -> None:
        """What became of a request's verified drafts."""
        balance = self.balance(view.options)
        reliability = balance.reliability
        balance.verified += bool(drafts)
        balance.accepted += sum(draft.state in reached for draft in drafts)
        free = view.root.count(view.end.mask_id)
        for draft in drafts:
            depth = free - draft.state.count(view.end.mask_id)
            reliability.observe(draft.mass, depth, draft.state in reached)

    def forwarded(self, seconds: float, copies: int, prefix: float, drafted: bool) -> None:
        """A forward over ``copies``, its walk included, took so long: the curve's level follows.

        Rounds with drafts have a level of their own: judging many copies costs more than their
        forward alone, and drafting must not look cheaper than it is.
        """
        level = self._drafted if drafted else self._plain
        level.take(seconds / max(self.curve.at(copies, prefix), 1e-9))
        if not self._trusted and level.rounds >= TRIAL:
            self._trusted = True
            if not 1 / FAR_OFF <= level.ratio <= FAR_OFF:
                # Measured in a bad moment (another machine's load), a kept curve would mislead
                # every run after it.
                self._curve = self._measure(True)
                self._plain, self._drafted = Level(), Level()
