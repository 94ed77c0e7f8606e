"""What replaying one setting adds up to, over parts of a cell's problems."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict

from benchmarks.spot.measures import MASS_EDGES, Depth, Fate, depths, forward_shapes, mass_bins
from decoders.request import Result

RoundFates = Sequence[Fate]


class ProblemCounts(NamedTuple):
    """One problem: forwards without prefill, rounds in which drafts were asked for, their drafts,
    rounds that had some (``verify``), and accepted drafts."""

    id: str
    nfe: int
    asked: int
    drafts: int
    verified: int
    accepted: int


class Tally(BaseModel):
    """Counts of one setting. ``shapes``: (copies, prefix, forwards); ``depths``: by fills beyond
    the root; ``masses``: rows of :func:`mass_bins`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    problems: tuple[ProblemCounts, ...] = ()
    shapes: tuple[tuple[int, int, int], ...] = ()
    depths: dict[int, Depth] = {}
    masses: tuple[tuple[float, float, float], ...] = ((0.0, 0.0, 0.0),) * (len(MASS_EDGES) - 1)

    @property
    def nfe(self) -> int:
        return sum(problem.nfe for problem in self.problems)

    @property
    def asked(self) -> int:
        return sum(problem.asked for problem in self.problems)

    @property
    def drafts_per_round(self) -> float:
        """Over the rounds in which drafts were asked for, those that had none included."""
        return _mean(sum(p.drafts for p in self.problems), self.asked)

    @property
    def accepted_per_round(self) -> float:
        """Over ``verify`` forwards, as everywhere."""
        verified = sum(problem.verified for problem in self.problems)
        return _mean(sum(problem.accepted for problem in self.problems), verified)

    def cost(self, price: Callable[[int, float], float]) -> float:
        """Sum of ``price(copies, prefix)`` over all forwards."""
        return sum(count * price(copies, prefix) for copies, prefix, count in self.shapes)

    def first(self, ids: Iterable[str]) -> "Tally":
        """Only the problems of ``ids``; what is not counted problem by problem is left out."""
        kept = set(ids)
        return Tally(problems=tuple(p for p in self.problems if p.id in kept))


def tally(results: Sequence[Result], rounds: Sequence[RoundFates], block_size: int) -> Tally:
    """Count replayed results; ``rounds`` are the fates of every round's drafts."""
    shapes = sum((forward_shapes(r.rounds, block_size) for r in results), Counter())
    flat = [fate for fates in rounds for fate in fates]
    return Tally(
        problems=tuple(map(count_problem, results)),
        shapes=tuple((*shape, count) for shape, count in sorted(shapes.items())),
        depths=depths(rounds),
        masses=tuple(tuple(row) for row in mass_bins(flat).tolist()),
    )


def count_problem(result: Result) -> ProblemCounts:
    asked = [r for r in result.rounds if r.kind in ("step", "verify")]
    verified = [r for r in asked if r.kind == "verify"]
    return ProblemCounts(
        result.request.id,
        result.nfe,
        len(asked),
        sum(r.drafts for r in asked),
        len(verified),
        sum(r.accepted for r in verified),
    )


def merge(parts: Sequence[Tally]) -> Tally:
    """All parts together."""
    shapes: Counter[tuple[int, int]] = Counter()
    by_depth: dict[int, Depth] = {}
    for part in parts:
        for copies, prefix, count in part.shapes:
            shapes[copies, prefix] += count
        for depth, counts in part.depths.items():
            summed = zip(by_depth.get(depth, Depth()), counts, strict=True)
            by_depth[depth] = Depth(*map(sum, summed))
    masses = np.sum([part.masses for part in parts], axis=0) if parts else Tally().masses
    return Tally(
        problems=tuple(problem for part in parts for problem in part.problems),
        shapes=tuple((*shape, count) for shape, count in sorted(shapes.items())),
        depths=by_depth,
        masses=tuple(tuple(row) for row in np.asarray(masses).tolist()),
    )


def _mean(total: int, count: int) -> float:
    return total / count if count else 0.0
