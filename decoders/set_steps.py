"""The likeliest whole steps from one state: which positions commit together, with which tokens.

Each masked position passes tau or not, on its own, and takes one of its candidates. Where none
passes, threshold decoding commits the most confident one; its likelihood is then spread over the
single positions as their odds of passing are.

Shapes: L block positions, C candidates of a position, O options of a position.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

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


def likeliest_steps(
    factors: StepFactors,
    most: int,
    barren: Callable[[Step], bool] = lambda step: False,
    keep_ends: bool = False,
) -> list[tuple[Step, float]]:
    """At most ``most`` non-empty steps that are not ``barren``, and with ``keep_ends`` as many that
    are, with their log-probabilities, in falling order; equal ones in the order of their commits.
    Log-probabilities are rounded, since batch shapes differ between replay and live.

    A step is barren where it leaves nothing to verify: its fills up to some position leave nothing
    open before that, and end the text or fill the block.
    """
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

    def step_of(choices: Sequence[int]) -> Step:
        return tuple((places[i], ids[i][c - 1]) for i, c in enumerate(choices) if c)

    def ends(choices: Sequence[int]) -> bool:
        return barren(step_of(choices))

    best = best_choices(options, most + 1)
    if keep_ends or any(ends(choices) for choices, _, _ in best):
        best = best_choices(options, most + 1, ends, keep_ends)
    found: dict[bool, dict[Step, float]] = {False: {}, True: {}}
    for choices, mass, ended in best:
        if np.count_nonzero(choices) > 1:
            found[ended][step_of(choices)] = mass
    worth = np.where(np.isfinite(options[:, 1:]) | (alone > _UNLIKELY), alone, -math.inf)
    # Only those at the first open position may end something: they are looked at beside the best.
    first = np.argsort(-worth, axis=None, kind="stable")[: most + worth.shape[1]].tolist()
    for flat in dict.fromkeys((*first, *range(worth.shape[1]))):
        index, choice = divmod(flat, worth.shape[1])
        if worth[index, choice] > -math.inf:
            step = ((places[index], ids[index][choice]),)
            found[index == 0 and barren(step)][step] = float(worth[index, choice])
    wanted = [found[False], found[True]] if keep_ends else [found[False]]
    return sorted((entry for steps in wanted for entry in _heaviest(steps, most)), key=_order)


def _heaviest(steps: dict[Step, float], most: int) -> list[tuple[Step, float]]:
    rounded = [(step, round(mass, _DECIMALS)) for step, mass in steps.items()]
    return sorted(rounded, key=_order)[:most]


def _order(entry: tuple[Step, float]) -> tuple[float, Step]:
    step, mass = entry
    return -mass, step


class _Part(NamedTuple):
    """The best choices of one kind for the first rows, in falling order: what they are worth, and
    the options ``[N, M]``."""

    totals: Array
    chosen: NDArray[np.int64]


def best_choices(
    options: Array,
    most: int,
    ends: Callable[[Sequence[int]], bool] | None = None,
    keep_ends: bool = False,
) -> list[tuple[list[int], float, bool]]:
    """The ``most`` best ways to choose one option of every row of ``options[M, O]``, with the sum
    of what they are worth, and as many that end, if ``keep_ends``. Option 0 leaves a row open.

    Row by row, the best of the choices so far with each option: what is not among the best of a
    part is in none of the best of the whole. Ends are told apart as soon as they come: they can be
    so many of the best ones that a search that dropped them afterwards would see little else.
    ``ends`` is asked about choices for the first rows that leave none open; whether they end
    depends on the last of them alone, where those before do not.
    """
    nothing = _Part(np.zeros(0), np.zeros((0, len(options)), dtype=np.int64))
    root = _Part(np.zeros(1), np.zeros((1, len(options)), dtype=np.int64))
    ended = nothing
    opened, closed = (root, nothing) if ends is None else (nothing, root)
    for at, row in enumerate(options):
        if ends is None or not len(closed.totals):
            opened, ended = (
                _extended(most, at, (part, row)) if len(part.totals) else part
                for part in (opened, ended)
            )
            continue
        before = closed.chosen[0, :at].tolist()
        leaves, lives, dies = np.full((3, len(row)), -math.inf)
        leaves[0] = row[0]
        for option in (1 + np.flatnonzero(row[1:] > -math.inf)).tolist():
            (dies if ends([*before, option]) else lives)[option] = row[option]
        opened = _extended(most, at, (opened, row), (closed, leaves))
        if keep_ends:
            ended = _extended(most, at, (ended, row), (closed, dies))
        closed = _extended(most, at, (closed, lives))
    going = [(*each, False) for part in (opened, closed) for each in _listed(part)]
    going = sorted(going, key=lambda each: -each[1])[:most]
    return going + [(*each, True) for each in _listed(ended)]


def _extended(most: int, at: int, *grown: tuple[_Part, Array]) -> _Part:
    """The best of parts that go on with row ``at``, each with the options given beside it."""
    sums = np.concatenate([(part.totals[:, None] + row).ravel() for part, row in grown])
    best = np.argsort(-sums, kind="stable")[:most]
    best = best[sums[best] > -math.inf]
    before, option = np.divmod(best, len(grown[0][1]))
    chosen = np.concatenate([part.chosen for part, _ in grown])[before]
    chosen[:, at] = option
    return _Part(sums[best], chosen)


def _listed(part: _Part) -> Iterator[tuple[list[int], float]]:
    return zip(part.chosen.tolist(), part.totals.tolist(), strict=True)
