"""Certificates: a method's outputs compared with those of its own draft-free run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from decoders.options import DecodeOptions
from decoders.rules import cap_log_odds

if TYPE_CHECKING:  # who only compares outputs needs no torch
    from decoders.trace import Trace

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Certificate:
    """``exact`` when every output is equal; ``differs`` when one that should be is not, with the
    smallest log-odds margin at a first divergence; ``approximate`` when equality is no promise."""

    kind: Literal["exact", "differs", "approximate"]
    equal: int
    """Outputs that are equal."""
    margin: float | None = None


def certify(
    options: DecodeOptions,
    rows: Sequence[Row],
    draft_free: Sequence[Row],
    trace_of: Callable[[int], Trace],
) -> Certificate:
    """Compare traced rows of ``options`` with those of their draft-free run, index by index.

    ``trace_of(i)`` records row i's draft-free run; it is asked only where outputs differ.
    """
    differing = [
        index
        for index, (row, base) in enumerate(zip(rows, draft_free, strict=True))
        if (row["token_ids"], row["stop_reason"]) != (base["token_ids"], base["stop_reason"])
    ]
    equal = len(rows) - len(differing)
    if not options.promises_equality:
        return Certificate("approximate", equal)
    if not differing:
        return Certificate("exact", equal)
    margins = [divergence_margin(trace_of(index), rows[index]) for index in differing]
    return Certificate("differs", equal, min(margins))


def divergence_margin(trace: Trace, row: Row) -> float:
    """How close the draft-free run was to committing what ``row`` commits instead.

    In log-odds between the two positions, or in log-probability between two tokens of one.
    """
    states = [(block.start, state) for block in trace.blocks for state in block.states]
    steps = [step for entry in row["rounds"] for step in entry["steps"]]
    for (start, state), step in zip(states, steps, strict=False):
        own = {start + position: token for position, token in state.step}
        other = dict(step)
        if own == other:
            continue
        stale = state.stale
        index = {start + int(p): i for i, p in enumerate(stale.positions)}
        options = trace.request.options
        if own.keys() != other.keys() and options.over_threshold:
            # Some position is on the other side of tau: how close is the closest one?
            tau, apart = cap_log_odds(options.tau), own.keys() ^ other.keys()
            return min(abs(float(stale.rank_log_odds[index[p]]) - tau) for p in apart)
        if own.keys() != other.keys():
            cap = cap_log_odds(trace.request.options.cap)
            best, chosen = (min(stale.rank_log_odds[index[min(p)]], cap) for p in (own, other))
            return abs(float(best - chosen))
        position = next(p for p in own if own[p] != other[p])
        scores = stale.scores[index[position]]
        found = stale.candidates[index[position]].tolist()
        rank = found.index(other[position]) if other[position] in found else -1
        return abs(float(scores[0] - scores[rank]))
    return 0.0
