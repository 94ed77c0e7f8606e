"""Pure measures of drafts and of stale distributions against the draft-free run.

Shapes: K commits ahead, C candidates kept of a stale row, B bins of mass.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from decoders.proposers.base import Draft
from decoders.request import Round
from decoders.stale import TOP_CANDIDATES
from decoders.state import State
from decoders.trace import TracedState

Counts = NDArray[np.int64]

MASS_EDGES = (0.0, 0.01, 0.02, 0.05, *(n / 10 for n in range(1, 10)), 0.95, 1.0)
"""Bins of predicted mass; the last one takes its upper edge in."""


class Fate(NamedTuple):
    """What became of a draft: fills beyond the root, predicted mass, whether it was accepted."""

    depth: int
    mass: float
    accepted: bool


def fates(root: State, drafts: Sequence[Draft], path: Iterable[State], mask_id: int) -> list[Fate]:
    """The fate of every draft of one round; ``path`` holds the states that draft-free decoding
    reaches behind ``root``, in order. Accepted are those that the walk goes through."""
    drafted = {draft.state for draft in drafts}
    accepted = set(takewhile(drafted.__contains__, path))
    free = root.count(mask_id)
    return [
        Fate(free - draft.state.count(mask_id), draft.mass, draft.state in accepted)
        for draft in drafts
    ]


class Depth(NamedTuple):
    """Drafts with this many fills, rounds that had one, and rounds that accepted one."""

    drafts: int = 0
    offered: int = 0
    accepted: int = 0


def depths(rounds: Iterable[Sequence[Fate]]) -> dict[int, Depth]:
    """Counts by depth. Of one depth a round accepts at most one draft."""
    found: dict[int, Depth] = {}
    for drafts in rounds:
        made = Counter(fate.depth for fate in drafts)
        taken = {fate.depth for fate in drafts if fate.accepted}
        for depth, count in made.items():
            old = found.get(depth, Depth())
            accepted = old.accepted + (depth in taken)
            found[depth] = Depth(old.drafts + count, old.offered + 1, accepted)
    return found


def mass_bins(found: Sequence[Fate]) -> NDArray[np.float64]:
    """``[B, 3]``: drafts, the sum of their masses, and accepted ones, by bins of mass."""
    mass = np.clip([fate.mass for fate in found], MASS_EDGES[0], MASS_EDGES[-1])
    accepted = np.array([fate.accepted for fate in found], dtype=np.float64)
    weights = (np.ones(len(found)), mass, accepted)
    return np.stack([np.histogram(mass, MASS_EDGES, weights=w)[0] for w in weights], axis=1)


def candidate_ranks(states: Sequence[TracedState], most: int) -> Counts:
    """How the next commits stand among the stale candidates: counts ``[K, C + 1]``.

    Row d - 1: of the tokens committed d commits after a state's own step, how many are the stale
    candidate of rank 0, 1, ... of their position; the last column counts those that are none.
    ``states`` are one block's, in order, with one commit each.
    """
    counts = np.zeros((most, TOP_CANDIDATES + 1), dtype=np.int64)
    commits = [commit for traced in states for commit in traced.step]
    assert len(commits) == len(states), "one commit a step"
    for index, traced in enumerate(states):
        later = commits[index + 1 : index + 1 + most]
        if not later:
            break
        positions, tokens = np.array(later).T
        rows = np.searchsorted(traced.stale.positions, positions)
        same = traced.stale.candidates[rows] == tokens[:, None]
        ranks = np.where(same.any(axis=1), same.argmax(axis=1), TOP_CANDIDATES)
        np.add.at(counts, (np.arange(len(later)), ranks), 1)
    return counts


def coverage(counts: Counts, candidates: int) -> list[float | None]:
    """Share of the next 1, 2, ... K commits' tokens among the ``candidates`` first stale ones,
    from :func:`candidate_ranks`; ``None`` where there are no such commits."""
    hits = counts[:, :candidates].sum(axis=1).cumsum()
    total = counts.sum(axis=1).cumsum()
    return [float(h / n) if n else None for h, n in zip(hits, total, strict=True)]


Shape = tuple[int, int]
"""Block copies in a forward, and the tokens before their block."""


def forward_shapes(rounds: Iterable[Round], block_size: int) -> Counter[Shape]:
    """How often a request forwards how many copies behind which prefix; prefill is left out.

    Every ``open`` but the first stores the block before it, which is one copy more.
    """
    found: Counter[Shape] = Counter()
    opened = False
    for each in rounds:
        if each.kind == "prefill":
            continue
        copies = 1 + each.drafts + (each.kind == "open" and opened)
        opened = True
        start = each.steps[0][0][0] // block_size * block_size
        found[copies, start] += 1
    return found
