"""``budget: auto``: whether to draft, and how much, decided in every round from what was measured.

Two things are learnt while decoding, neither of which can change an output: how often drafts of a
given mass were accepted (:mod:`decoders.reliability`), and what drafted rounds gained
(:mod:`decoders.balance`): the steps that were taken against the seconds that passed, whatever had
been expected of either. How much to draft follows from the first and the cost curve: all ``auto``
requests of a round share one number of drafts, which go to the largest masses.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import median

import numpy as np

from decoders.allotment import best_allotment, closed_masses
from decoders.balance import Balance
from decoders.boundary import cut
from decoders.cost_curve import CostCurve
from decoders.options import DecodeOptions
from decoders.proposers.base import Draft, Place, View

FLOOR_OF_PRICE, HIGHEST_FLOOR = 0.25, 0.5
"""The mass floor as a part of what a draft costs in steps: a state's mass exceeds that of its
likeliest order, to which the floor applies, and may itself be too low."""
SETTLED, FAR_OFF = 16, 2.0
"""A curve that is off by more than this factor after so many rounds is measured anew."""
MOST_PRICES = 4096
"""Prices looked up that are kept."""
MOST_KINDS = 1024
"""Kinds of requests that are remembered: clients choose temperatures, of which there is no end."""
LEVEL_MEMORY = 33
"""Rounds over whose median a level is measured."""
MOST_OFF = 2.0
"""A round that takes longer than this many times the usual was interrupted, and counts as much."""


class Level:
    """Measured over expected seconds of a round: the median of the latest ones."""

    def __init__(self) -> None:
        self._latest: deque[float] = deque(maxlen=LEVEL_MEMORY)
        self.rounds = 0
        self.ratio = 1.0

    def take(self, ratio: float) -> None:
        """One round."""
        self.rounds += 1
        self._latest.append(ratio)
        self.ratio = median(self._latest)


@dataclass
class Share:
    """One kind's part in the round under way."""

    requests: int = 0
    drafts: int = 0
    accepted: int = 0
    most_drafts: int = 0
    """Of one request."""


@lru_cache(maxsize=MOST_KINDS)
def kind_of(options: DecodeOptions) -> Hashable:
    """Requests that share a balance: everything that decides drafts or their acceptance."""
    own = {"method", "rule", "gamma", "hedge", "width", "prune", "cross_block", "draft_refresh"}
    # Its method tells which of the two commit rules it follows.
    kind = options.commit_rule() | options.model_dump(include=own)
    kind |= {"max_new_tokens": None, "ignore_stop": None}
    return tuple(sorted(kind.items(), key=str))


def depth_of(view: View, draft: Draft) -> int:
    """Fills beyond the root."""
    filled = view.root.count(view.end.mask_id) - draft.state.count(view.end.mask_id)
    return filled if draft.behind is None else filled + len(view.root)


class AutoBudget:
    """The budget of all ``auto`` requests of one target."""

    def __init__(self, measure: Callable[[bool], CostCurve]) -> None:
        """``measure(False)`` is called in the first round that has an ``auto`` request and may
        return a kept curve; ``measure(True)``, which may not, by :meth:`check_curve`."""
        self._measure = measure
        self._curve: CostCurve | None = None
        self._balances: OrderedDict[Hashable, Balance] = OrderedDict()
        """The latest asked for last."""
        self._plain, self._drafted = Level(), Level()
        self._trusted = False
        self._shares: dict[Hashable, Share] = {}
        self._prices: dict[tuple[int, float], float] = {}

    @property
    def curve(self) -> CostCurve:
        """The measured cost of a forward."""
        if self._curve is None:
            self._curve = self._measure(False)
        return self._curve

    def _seconds(self, copies: int, prefix: float) -> float:
        """The curve's price, looked up: every round asks, most of them for the same."""
        key = copies, prefix
        if key not in self._prices:
            if len(self._prices) >= MOST_PRICES:
                self._prices.clear()
            self._prices[key] = max(self.curve.at(copies, prefix), 1e-9)
        return self._prices[key]

    @property
    def _plain_ratio(self) -> float:
        """Of small blocks in large batches every round stores one; drafted rounds then tell."""
        return (self._plain if self._plain.rounds else self._drafted).ratio

    def balance(self, options: DecodeOptions) -> Balance:
        return self._balance_of(kind_of(options))

    def _balance_of(self, kind: Hashable) -> Balance:
        balance = self._balances.pop(kind, None) or Balance()
        self._balances[kind] = balance
        if len(self._balances) > MOST_KINDS:
            self._balances.popitem(last=False)
        return balance

    def admitted(self, kinds: Iterable[Hashable]) -> dict[Hashable, bool]:
        """For each of the :func:`kinds <kind_of>` of a round's ``auto`` requests: whether to spend
        its drafter."""
        return {kind: self._balance_of(kind).admits() for kind in dict.fromkeys(kinds)}

    def limited(self, view: View, requests: int, prefix: float) -> View:
        """The view with a budget and a mass floor that a proposer can work with: what no forward
        of ``requests`` behind ``prefix`` tokens would be worth need not be grown."""
        limit = self.balance(view.options).limit
        curve = self.curve.upto(requests + limit, prefix).clip(1e-9)
        plain = float(curve[requests])
        cheapest = float(np.min((curve[requests + 1 :] - plain) / np.arange(1, limit + 1)))
        floor = min(FLOOR_OF_PRICE * cheapest * requests / plain, HIGHEST_FLOOR)
        options = view.options.model_copy(update={"budget": limit})
        return replace(view, options=options, floor=floor)

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
        seconds[copies] = self._plain_ratio * curve[copies]
        taken = best_allotment(masses, copies, seconds, requests)
        chosen: list[list[Draft]] = []
        for view, found, row, indices in zip(views, drafts, masses, taken, strict=True):
            mask_id = view.end.mask_id
            stepping = (row[i] for i in indices if mask_id in found[i].state)
            self.balance(view.options).expected += sum(stepping)
            chosen.append(cut([found[i] for i in indices], len(indices), mask_id))
        return chosen

    def _masses(self, view: View, drafts: Sequence[Draft]) -> list[float]:
        reliability = self.balance(view.options).reliability
        probabilities = [reliability.probability(d.mass, depth_of(view, d)) for d in drafts]
        places = [draft.place for draft in drafts]
        steps = view.options.over_threshold
        return closed_masses(view.root, places, probabilities, view.end.mask_id, whole_steps=steps)

    def observe(self, view: View, drafts: Sequence[Draft], reached: Collection[Place]) -> None:
        """What became of a request's verified drafts."""
        balance = self.balance(view.options)
        reliability = balance.reliability
        # A full draft makes no step of its own: the copy behind it does.
        accepted = sum(d.place in reached and view.end.mask_id in d.state for d in drafts)
        balance.verified += bool(drafts)
        balance.accepted += accepted
        share = self._shares.setdefault(kind_of(view.options), Share())
        share.requests += 1
        share.drafts += len(drafts)
        share.accepted += accepted
        share.most_drafts = max(share.most_drafts, len(drafts))
        for draft in drafts:
            reliability.observe(draft.mass, depth_of(view, draft), draft.place in reached)

    def forwarded(
        self, seconds: float, requests: int, plain_copies: int, copies: int, prefix: float
    ) -> None:
        """A round of ``requests``, its proposals left out, took so long over ``copies``, of which
        ``plain_copies`` were no drafts: the curve's level follows, and the kinds that drafted are
        told what they gained.

        Rounds with drafts have a level of their own: judging many copies costs more than their
        forward alone, and drafting must not look cheaper than it is.
        """
        expected = self._seconds(copies, prefix)
        level = self._drafted if copies > plain_copies else self._plain
        # A round that stores blocks opens others, which costs more than a step. It tells nothing.
        if level is self._drafted or plain_copies == requests:
            level.take(seconds / expected)
        if self._shares:
            plain = self._plain_ratio * self._seconds(plain_copies, prefix)
            self._settle(min(seconds, MOST_OFF * level.ratio * expected), requests, plain)

    def check_curve(self) -> None:
        """Measure the curve anew, once, where it has proved to be far off: measured in a bad moment
        (another program's load), a kept one would mislead every run after it. That takes seconds,
        so nobody calls it while requests of others wait for their next round."""
        settled = [level for level in (self._plain, self._drafted) if level.rounds >= SETTLED]
        if self._trusted or not settled:
            return
        self._trusted = True
        if not 1 / FAR_OFF <= settled[0].ratio <= FAR_OFF:
            self._curve = self._measure(True)
            self._prices.clear()
            self._plain, self._drafted = Level(), Level()

    def _settle(self, seconds: float, requests: int, plain: float) -> None:
        """Book to each kind what drafting gained a request: the steps accepted, less those that
        plain rounds (``plain`` seconds, one step for each of ``requests``) would have made in the
        time of its drafts and its drafter."""
        total = sum(share.drafts for share in self._shares.values())
        for kind, share in self._shares.items():
            balance = self._balance_of(kind)
            # Without drafts the round was a plain one, and its noise says nothing of drafting.
            extra = (seconds - plain) * share.drafts / total if total else 0.0
            extra += balance.drafter_seconds * share.requests
            advantage = (share.accepted - extra * requests / plain) / share.requests
            balance.settle(advantage, share.most_drafts)
        self._shares.clear()
