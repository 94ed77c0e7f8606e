"""Which drafted steps count over threshold decoding, and which accepted path commits most.

``exact`` is state equality (:mod:`decoders.walk`). The other rules (SPOT section 4.4, read as in
algorithms.md section 6) take more, and their output depends on the drafter: approximate.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from decoders.options import Acceptance
from decoders.rules import Floats, Ints, Step, threshold_step
from decoders.state import State
from decoders.walk import Walk


@dataclass(frozen=True)
class Rows:
    """What the target said of one copy: masked ``positions``, the ``tokens`` drawn there and the
    ``log_odds`` of their confidence, all ``[M]``."""

    positions: Ints
    tokens: Ints
    log_odds: Floats


def acceptable(step: Step, own: Step, rows: Rows, tau: float, rule: Acceptance) -> bool:
    """Whether a non-empty drafted step may be committed from the state that ``rows`` are of;
    ``own`` is the step of threshold decoding there."""
    if step == own:
        return True
    if rule == "exact":
        return False
    if rule == "product":
        return _is_product(step, rows, tau)
    return set(step) <= set(own) and (rule == "subset" or _is_cut(step, own, rows))


def _is_product(step: Step, rows: Rows, tau: float) -> bool:
    """The target's tokens, with a geometric mean of confidences that reaches tau."""
    row_of = {int(position): row for row, position in enumerate(rows.positions)}
    drawn = [row_of[position] for position, _ in step]
    if any(rows.tokens[row] != token for row, (_, token) in zip(drawn, step, strict=True)):
        return False
    # log p from log-odds, where p saturates.
    log_probs = -np.logaddexp(0, -rows.log_odds[drawn].astype(np.float64))
    return bool(np.exp(log_probs.mean()) >= tau)


def _is_cut(step: Step, own: Step, rows: Rows) -> bool:
    """Whether some stricter tau makes ``step`` of what tau makes ``own``: every member is more
    confident than all that are left out, or it is the most confident alone."""
    confidence = dict(zip(rows.positions.tolist(), rows.log_odds.tolist(), strict=True))
    inside = {position for position, _ in step}
    outside = [confidence[position] for position, _ in own if position not in inside]
    if min(confidence[position] for position in inside) > max(outside):
        return True
    best = max(confidence.values())
    return inside == {min(p for p, value in confidence.items() if value == best)}


@dataclass(frozen=True)
class Best:
    """What a copy is worth: all that can be committed from it, and by which draft (if any) it goes
    on; else by its own step."""

    commits: int
    own: Step
    step: Step = ()
    draft: int | None = None


def max_commit(
    copies: Sequence[State],
    ends: Sequence[State],
    rows_of: Callable[[int], Rows],
    tau: float,
    rule: Acceptance,
    mask_id: int,
) -> Walk:
    """The walk from the root ``copies[0]`` that commits most (algorithms.md section 6).

    A copy is worth its own step or, through any draft that extends it by an acceptable one, that
    step and what the draft is worth; ``ends`` are finished drafts, which have no rows and are worth
    nothing more. Equal worth goes to the target's own step, then to the earlier draft.
    """
    drafts = [*copies[1:], *ends]
    known: dict[int, Best] = {}

    def best_from(copy: int) -> Best:
        if copy not in known:
            known[copy] = _best(copy)
        return known[copy]

    def _best(copy: int) -> Best:
        rows = rows_of(copy)
        own = threshold_step(rows.positions, rows.tokens, rows.log_odds, tau)
        best = Best(len(own), own)
        for index, draft in enumerate(drafts):
            step = step_between(copies[copy], draft, mask_id)
            if not step or not acceptable(step, own, rows, tau, rule):
                continue
            behind = best_from(index + 1).commits if index + 1 < len(copies) else 0
            if len(step) + behind > best.commits:
                best = Best(len(step) + behind, own, step, index)
        return best

    steps, copy = [], 0
    while True:
        best = best_from(copy)
        steps.append(best.own if best.draft is None else best.step)
        if best.draft is None or best.draft + 1 >= len(copies):
            break
        copy = best.draft + 1
    return Walk(tuple(steps), _after(copies[0], steps), copy)


def step_between(before: State, after: State, mask_id: int) -> Step:
    """The fills that lead from one state to a larger one; empty where it is not one."""
    if any(a != b for a, b in zip(before, after, strict=True) if a != mask_id):
        return ()
    return tuple(
        (position, token)
        for position, (old, token) in enumerate(zip(before, after, strict=True))
        if old == mask_id != token
    )


def _after(state: State, steps: Sequence[Step]) -> State:
    filled = dict(enumerate(state))
    for step in steps:
        filled |= dict(step)
    return tuple(filled[position] for position in range(len(state)))
