"""The likeliest steps against trying every step."""

import math
from itertools import product

import numpy as np
import pytest

from decoders.set_steps import MOST_TOKENS, StepFactors, best_choices, likeliest_steps
from decoders.state import BlockEnd, fill


def random_factors(seed: int, masked: int, candidates: int) -> StepFactors:
    """A block of five positions of which ``masked`` are open."""
    draw = np.random.default_rng(seed)
    logits = np.full(5, -math.inf)
    logits[draw.choice(5, masked, replace=False)] = draw.normal(0, 2, masked)
    log_probs = np.log(-np.sort(-draw.dirichlet(np.ones(candidates), 5), axis=1))
    return StepFactors(
        logits, draw.permuted(np.tile(np.arange(10, 18), (5, 1)), axis=1)[:, :candidates], log_probs
    )


def every_step(factors: StepFactors) -> dict[tuple[tuple[int, int], ...], float]:
    """The probability of every non-empty step, by the definition."""
    places = np.flatnonzero(factors.pass_logits > -math.inf)
    chance = {p: 1 / (1 + math.exp(-factors.pass_logits[p])) for p in places}
    none = math.prod(1 - c for c in chance.values())
    odds = {p: math.exp(factors.pass_logits[p]) for p in places}
    count = factors.ids.shape[1]
    found = {}
    for choice in product(range(-1, min(count, MOST_TOKENS)), repeat=len(places)):
        step, mass = [], 1.0
        for p, c in zip(places, choice, strict=True):
            mass *= 1 - chance[p] if c < 0 else chance[p] * math.exp(factors.log_probs[p, c])
            if c >= 0:
                step.append((int(p), int(factors.ids[p, c])))
        if len(step) == 1:
            [(p, c)] = [(p, c) for p, c in zip(places, choice, strict=True) if c >= 0]
            mass += none * odds[p] / sum(odds.values()) * math.exp(factors.log_probs[p, c])
        if step:
            found[tuple(step)] = mass
    return found


@pytest.mark.parametrize("most", [1, 3, 8, 500])
@pytest.mark.parametrize(("masked", "candidates"), [(1, 1), (1, 6), (3, 2), (4, 3)])
def test_the_likeliest_steps_are_found(masked: int, candidates: int, most: int) -> None:
    for seed in range(12):
        factors = random_factors(seed, masked, candidates)
        found = likeliest_steps(factors, most)
        expected = every_step(factors)
        best = sorted(expected.values(), reverse=True)[:most]
        assert [math.exp(mass) for _, mass in found] == pytest.approx(best, rel=2e-3, abs=2e-6)
        for step, mass in found:
            assert math.exp(mass) == pytest.approx(expected[step], rel=2e-3, abs=2e-6)


def test_steps_are_no_more_likely_than_everything_together() -> None:
    for seed in range(20):
        total = sum(math.exp(mass) for _, mass in likeliest_steps(random_factors(seed, 4, 3), 500))
        assert total == pytest.approx(1, abs=5e-3)


def test_fewer_steps_are_the_first_of_more() -> None:
    factors = random_factors(3, 4, 3)
    assert likeliest_steps(factors, 5) == likeliest_steps(factors, 20)[:5]


@pytest.mark.parametrize("limit", [3, 99])
def test_steps_that_end_the_text_or_the_block_crowd_none_out(limit: int) -> None:
    mask, stops = 99, (10, 13, 16)
    for seed in range(20):
        factors = random_factors(seed, 2 + seed % 3, 3)
        root = tuple(np.where(np.isfinite(factors.pass_logits), mask, 50 + seed % 2 * -40).tolist())
        end = BlockEnd(mask, 0, limit, stops)
        if end.finished(root):
            continue
        every = likeliest_steps(factors, 500)
        for most in (1, 6):
            ends = [e for e in every if end.finished(fill(root, e[0]))][:most]
            others = [e for e in every if not end.finished(fill(root, e[0]))][:most]
            asked = factors, most, lambda step, root=root, end=end: end.finished(fill(root, step))
            expected = sorted([*ends, *others], key=lambda entry: -entry[1])
            found = likeliest_steps(*asked, keep_ends=True)
            assert [mass for _, mass in found] == [mass for _, mass in expected]
            assert [m for _, m in likeliest_steps(*asked)] == [mass for _, mass in others]


def test_the_best_choices_are_the_best_sums() -> None:
    options = np.random.default_rng(0).normal(size=(4, 3))
    found = [total for _, total, _ in best_choices(options, 10)]
    sums = [
        sum(row[i] for row, i in zip(options, c, strict=True)) for c in product(range(3), repeat=4)
    ]
    assert found == pytest.approx(sorted(sums, reverse=True)[:10])
