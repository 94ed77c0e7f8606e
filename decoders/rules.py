"""Commit rules: which masked positions a target fills from one state (algorithms.md section 2).

Pure functions over numpy rows of one copy: ``positions`` (ascending, absolute or within the block),
``tokens`` and ``log_odds`` of the confidence, all ``[M]``.
"""

import math

import numpy as np
from numpy.typing import NDArray

from decoders.options import DecodeOptions

Step = tuple[tuple[int, int], ...]
"""The commits made from one state: (position, token) pairs, positions ascending. With editing one
may stand at a position that is filled, and there may be none."""

Floats = NDArray[np.floating]
Ints = NDArray[np.integer]


def cap_log_odds(cap: float) -> float:
    """The log-odds that confidence is capped at; infinite when the cap is off."""
    if cap >= 1:
        return math.inf
    return math.log(cap / (1 - cap)) if cap > 0 else -math.inf


def commit_rank(log_odds: Floats, cap: float) -> Ints:
    """Indices in commit order: highest capped log-odds first, ties to the lowest position."""
    return np.argsort(-np.minimum(log_odds, cap_log_odds(cap)), kind="stable")


def standard_step(positions: Ints, tokens: Ints, log_odds: Floats, cap: float) -> Step:
    """The one most confident position, with its token."""
    best = int(np.argmax(np.minimum(log_odds, cap_log_odds(cap))))
    return ((int(positions[best]), int(tokens[best])),)


def threshold_step(positions: Ints, tokens: Ints, log_odds: Floats, tau: float) -> Step:
    """Every position whose confidence is strictly above ``tau``; the top one when none is."""
    passing = np.flatnonzero(log_odds > cap_log_odds(tau))
    if not len(passing):
        return standard_step(positions, tokens, log_odds, cap=1.0)
    return tuple((int(positions[i]), int(tokens[i])) for i in passing)


def editing_step(
    positions: Ints,
    tokens: Ints,
    log_odds: Floats,
    current: Ints,
    mask_id: int,
    options: DecodeOptions,
) -> Step:
    """A threshold step over the masked rows, and with it every filled row whose token is now
    another one with a confidence strictly above ``edit_tau`` (LLaDA2.1); ``current[M]`` are the
    tokens that the rows hold. Empty when nothing is masked and nothing is to be replaced."""
    masked = current == mask_id
    edited = ~masked & (tokens != current) & (log_odds > cap_log_odds(options.edit_tau))
    fills: Step = ()
    if masked.any():
        fills = threshold_step(positions[masked], tokens[masked], log_odds[masked], options.tau)
    edits = ((int(positions[i]), int(tokens[i])) for i in np.flatnonzero(edited))
    return tuple(sorted((*fills, *edits)))


def commit_step(positions: Ints, tokens: Ints, log_odds: Floats, options: DecodeOptions) -> Step:
    """The step of the rule that ``options`` name."""
    if options.over_threshold:
        return threshold_step(positions, tokens, log_odds, options.tau)
    return standard_step(positions, tokens, log_odds, options.cap)
