"""Reading a watched request's rounds: how drafts hang together, which of them the target came to,
and how sure every commit was. Nothing here runs for a request that nobody watches."""

import math
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from time import perf_counter

import numpy as np

from decoders.judge import Judged
from decoders.passage import Judgement, Passage
from decoders.proposers.base import Draft, Place
from decoders.rules import Step
from decoders.sequence import Sequence
from decoders.sight import Confidences, DraftNode, SeenRound, Sight
from decoders.state import fill


def look(judged: Judgement, passage: Passage, drafts: Seq[Draft]) -> Sight:
    """The sight of a forward, before its steps are committed."""
    masses = {draft.place: draft.mass for draft in drafts}
    return Sight(draft_tree(judged, passage, masses), confidences(judged, passage))


def new_rounds(sequence: Sequence, num_seen: int) -> tuple[SeenRound, ...]:
    """The rounds behind the first ``num_seen``, whose sights are handed over; none for a request
    that is not watched."""
    if sequence.sights is None:
        return ()
    seconds = perf_counter() - sequence.started
    return tuple(
        SeenRound(sequence.rounds[index], sequence.sights.pop(index, None), seconds)
        for index in range(num_seen, len(sequence.rounds))
    )


def draft_tree(
    judged: Judgement, passage: Passage, masses: Mapping[Place, float]
) -> tuple[DraftNode, ...]:
    """Every copy but the root as a node of one tree."""
    sequence, part = judged.sequence, judged.part
    inside: list[Place] = [(None, state) for state in (*part.drafts, *part.full)]
    places = [*inside, *part.ahead]
    reached = passage.reached(part.root, sequence.blank)
    parents = find_parents(places, reached, sequence.spec.mask_token_id)
    nodes = []
    for place, parent in zip(places, parents, strict=True):
        behind, state = place
        within = parent is not None and places[parent][0] == behind
        first = part.root if behind is None else sequence.blank
        above = places[parent][1] if parent is not None and within else first
        start = sequence.block_start if behind is None else sequence.next_start
        fills = tuple((start + i, t) for i, t in enumerate(state) if t != above[i])
        nodes.append(DraftNode(parent, fills, masses.get(place), place in reached))
    return tuple(nodes)


def find_parents(places: Seq[Place], reached: set[Place], mask_id: int) -> list[int | None]:
    """For every place the index of the one that it hangs behind, ``None`` for the root.

    Drafts that are one state by several orders are one copy. Of the states it may have come from
    that is the one the target came by, where it came to it; else the fullest, of equals the first.
    """
    states_NL = np.array([state for _, state in places])
    found: list[int | None] = []
    for place in places:
        behind, state = place
        agree_NL = (states_NL == mask_id) | (states_NL == state)
        leads_N = agree_NL.all(axis=1) & (states_NL != state).any(axis=1)
        before = [i for i in np.flatnonzero(leads_N).tolist() if places[i][0] == behind]
        if before:
            came_by = {i for i in before if place in reached and places[i] in reached}
            filled = (states_NL[before] != mask_id).sum(axis=1).tolist()
            ranked = zip(before, filled, strict=True)
            found.append(max(ranked, key=lambda each: (each[0] in came_by, each[1], -each[0]))[0])
        else:
            found.append(None if behind is None else places.index((None, behind)))
    return found


def confidences(judged: Judgement, passage: Passage) -> Confidences:
    """The probability that the commit rule ranks by; ``None`` where an earlier forward said it."""
    part = judged.part
    seen: dict[Place, tuple[Judged, int]] = {
        (None, state): (judged.here, copy) for copy, state in enumerate((part.root, *part.drafts))
    }
    if judged.ahead is not None:
        seen |= {place: (judged.ahead, copy) for copy, place in enumerate(part.ahead)}
    found: list[tuple[float | None, ...]] = []
    behind, state = None, part.root
    for leg in passage.legs:
        for step in leg.steps:
            found.append(_of_step(seen.get((behind, state)), step))
            state = fill(state, step)
        behind, state = state, judged.sequence.blank
    return tuple(found)


def _of_step(copy: tuple[Judged, int] | None, step: Step) -> tuple[float | None, ...]:
    if copy is None:
        return (None,) * len(step)
    rows = copy[0].rows(copy[1])
    told = dict(zip(rows.positions.tolist(), rows.log_odds.tolist(), strict=True))
    return tuple(math.exp(-np.logaddexp(0.0, -told[position])) for position, _ in step)
