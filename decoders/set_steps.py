"""The likeliest whole steps from one state: which positions commit together, with which tokens.

Each masked position passes tau or not, on its own, and takes one of its candidates. Where none
passes, threshold decoding commits the most confident one; its likelihood is then spread over the
single positions as their odds of passing are.

Shapes: L block positions, C candidates of a position, O options of a position.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from decoders.rules import Step

MOST_TOKENS = 4
"""Candidates of a position that a step may name."""
_DECIMALS = 4
_UNLIKELY = -14.0
"""A choice whose log-probability is below this is none."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class StepFactors:
    """What a drafter says of one state: ``pass_logits[L]`` (-inf where filled), and the tokens
    ``ids[L, C]`` with ``log_probs[L, C]``, falling along C (-inf where there is none)."""

    pass_logits: Array
    ids: NDArray[np.int64]
    log_probs: Array


def likeliest_steps(factors: StepFactors, most: int) -> list[tuple[Step, float]]:
    """At most ``most`` non-empty steps with their log-probabilities, in falling order; equal ones
    in the order of their commits. Log-probabilities are rounded, since batch shapes differ between
    replay and live."""
    positions = np.flatnonzero(factors.pass_logits > -math.inf)
    ids = factors.ids[positions, :MOST_TOKENS].tolist()
    logits = factors.pass_logits[positions]
    token_log_probs = factors.log_probs[positions, :MOST_TOKENS]
    outside = -np.logaddexp(0, logits)
    tokens = -np.logaddexp(0, -logits)[:, None] + token_log_probs
    options = np.round(np.concatenate((outside[:, None], tokens), axis=1), _DECIMALS)
    options[options < _UNLIKELY] = -math.inf
    # A single position is committed where it alone passes, or where none does and it is the first.
    shares = logits - np.logaddexp.reduce(logits)
    alone = np.logaddexp(
        tokens + (outside.sum() - outside)[:, None],
        (outside.sum() + shares)[:, None] + token_log_probs,
    )
    places = positions.tolist()
    found: dict[Step, float] = {}
    for choices, mass in best_choices(options, most + 1):
        step = tuple((places[i], ids[i][c - 1]) for i, c in enumerate(choices) if c)
        if len(step) == 1:
            index = next(i for i, c in enumerate(choices) if c)
            mass = float(alone[index, choices[index] - 1])
        if step:
            found[step] = mass
    for flat in np.argsort(-alone, axis=None, kind="stable")[:most].tolist():
        index, choice = divmod(flat, alone.shape[1])
        if alone[index, choice] > _UNLIKELY:
            found[((places[index], ids[index][choice]),)] = float(alone[index, choice])
    rounded = [(step, round(mass, _DECIMALS)) for step, mass in found.items()]
    return sorted(rounded, key=lambda entry: (-entry[1], entry[0]))[:most]


def best_choices(options: Array, most: int) -> list[tuple[list[int], float]]:
    """The ``most`` best ways to choose one option of every row of ``options[M, O]``, with the sum
    of what they are worth.

    Row by row, the best of the choices so far with each option: what is not among the best of a
    part is in none of the best of the whole.
    """
    totals = np.zeros(1)
    chosen = np.zeros((1, 0), dtype=np.int64)
    for row in options:
        sums = (totals[:, None] + row).ravel()
        best = np.argsort(-sums, kind="stable")[:most]
        best = best[sums[best] > -math.inf]
        totals = sums[best]
        chosen = np.concatenate((chosen[best // len(row)], (best % len(row))[:, None]), axis=1)
    return list(zip(chosen.tolist(), totals.tolist(), strict=True))
