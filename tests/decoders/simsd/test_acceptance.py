"""Acceptance keeps its promise: greedily the target's own tokens, by chance its distribution."""

import math

import pytest
import torch
from scipy.stats import chisquare

from decoders.simsd.acceptance import (
    acceptance_order,
    accepted_count,
    accepts_by_chance,
    accepts_greedily,
    residual_token,
    uniform_of,
)

ALPHA = 1e-4


def test_temporal_order_is_the_drafters_and_positional_order_is_the_texts() -> None:
    assert acceptance_order((5, 1, 3), "temporal") == [0, 1, 2]
    assert acceptance_order((5, 1, 3), "positional") == [1, 2, 0]


def test_acceptance_stops_at_the_first_rejection_whatever_follows() -> None:
    accepts = accepts_greedily([7, 8, 9], [7, 5, 9])
    assert accepted_count([0, 1, 2], accepts) == 1
    assert accepted_count([2, 0, 1], accepts) == 2
    assert accepted_count([0, 2], accepts) == 2


@pytest.mark.parametrize(
    ("p", "q"),
    [
        ([0.7, 0.2, 0.1], [0.2, 0.5, 0.3]),
        ([0.25, 0.25, 0.5], [0.25, 0.25, 0.5]),
        ([0.98, 0.01, 0.01], [0.0, 0.4, 0.6]),
        ([0.5, 0.5, 0.0], [0.1, 0.2, 0.7]),
    ],
    ids=["far", "equal", "disjoint", "unseen"],
)
def test_accepted_and_corrected_tokens_follow_the_targets_distribution(
    p: list[float], q: list[float]
) -> None:
    """Speculative sampling's guarantee, for any drafter: chi-square over 20,000 draws."""
    draw = torch.Generator().manual_seed(0)
    n = 20_000
    log_p, log_q = torch.tensor(p).log(), torch.tensor(q).log()
    gumbel = -torch.log(-torch.log(torch.rand((n, 3), generator=draw, dtype=torch.float64)))
    drafted = torch.multinomial(torch.tensor(p), n, replacement=True, generator=draw).tolist()
    uniform = torch.rand(n, generator=draw).tolist()
    counts = [0, 0, 0]
    for index, token in enumerate(drafted):
        pair = [float(log_q[token])], [float(log_p[token])]
        taken = accepted_count([0], accepts_by_chance(*pair, [uniform[index]]))
        counts[token if taken else residual_token(log_q, log_p, gumbel[index])] += 1
    expected = [n * x for x in q]
    assert all(count == 0 for count, x in zip(counts, expected, strict=True) if x == 0)
    seen = [(count, x) for count, x in zip(counts, expected, strict=True) if x > 0]
    assert chisquare(*zip(*seen, strict=True)).pvalue > ALPHA


def test_equal_distributions_reject_nothing() -> None:
    accepts = accepts_by_chance([-1.5], [-1.5], [math.nextafter(1.0, 0.0)])
    assert accepts(0)


def test_gumbel_noise_becomes_uniform() -> None:
    assert uniform_of(torch.tensor([0.0])) == pytest.approx([math.exp(-1)])
    least, most = uniform_of(torch.tensor([-3.2, 23.0]))
    assert 0 < least < 1e-9
    assert 1 - 1e-9 < most < 1
