"""From logits to tokens and confidences, against plain Python in high precision."""

import math
from decimal import Decimal, getcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from decoders.noise import gumbel_table
from decoders.options import DecodeOptions
from decoders.sampling import filtered_scores, log_odds, perturbed_scores, suppress_mask_token
from tests.reference.decoding import filtered

getcontext().prec = 60
NOWHERE = -math.inf


def rows(*values: list[float], dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor(values, dtype=dtype)


def decimal_log_odds(logits: list[float], token: int) -> float:
    """log p - log(1 - p) in sixty digits."""
    others = sum((Decimal(x).exp() for v, x in enumerate(logits) if v != token), Decimal(0))
    return float(Decimal(logits[token]) - others.ln())


@settings(derandomize=True, deadline=None, max_examples=80)
@given(
    st.lists(st.floats(-40, 40, width=32), min_size=2, max_size=9),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_log_odds_equal_the_high_precision_reference(
    logits: list[float], dtype: torch.dtype
) -> None:
    tolerance = {torch.float32: 2e-6, torch.float64: 1e-13}[dtype]
    for token in range(len(logits)):
        expected = decimal_log_odds(logits, token)
        found = float(log_odds(rows(logits, dtype=dtype), torch.tensor([token]))[0])
        assert found == pytest.approx(expected, rel=tolerance, abs=tolerance * 40)


def test_saturated_probabilities_keep_their_order() -> None:
    logits = rows(*([float(margin), 0.0, -3.0] for margin in range(20, 120)), dtype=torch.float32)
    top = torch.zeros(100, dtype=torch.long)
    probabilities = torch.softmax(logits, dim=1)[:, 0]
    assert (probabilities == 1.0).all(), "the probabilities themselves tie"
    assert (log_odds(logits, top).diff() > 0).all()


def test_a_token_without_a_rival_has_infinite_log_odds() -> None:
    logits = rows([NOWHERE, 2.0, NOWHERE], [1.0, 2.0, NOWHERE])
    found = log_odds(logits, torch.tensor([1, 1])).tolist()
    assert found == [math.inf, pytest.approx(1.0)]


def test_log_odds_leave_the_logits_alone() -> None:
    logits = rows([0.0, 1.0, 2.0])
    before = logits.clone()
    log_odds(logits, torch.tensor([2]))
    assert torch.equal(logits, before)


FILTERS = [
    {},
    {"top_k": 1},
    {"top_k": 3},
    {"top_k": 50},
    {"top_p": 0.5},
    {"top_p": 1e-6},
    {"top_p": 0.999},
    {"top_k": 4, "top_p": 0.6},
]


@pytest.mark.parametrize("filters", FILTERS, ids=str)
@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_temperature_then_top_k_then_top_p_then_log_softmax(
    filters: dict[str, float], temperature: float
) -> None:
    options = DecodeOptions.lenient(temperature=temperature, **filters)
    logits = torch.randn(30, 12, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    logits = suppress_mask_token(2 * logits, 3)
    found = filtered_scores(logits, temperature, options.top_k, options.top_p)
    expected = [filtered(row, options) for row in logits.tolist()]
    torch.testing.assert_close(found, rows(*expected), rtol=0, atol=1e-12)


def test_top_p_acts_on_what_temperature_and_top_k_left() -> None:
    # The first token holds 0.88 untempered, 0.705 at T=2, 0.731 there once top-k dropped the last.
    logits = rows([2.0, 0.0, -4.0])
    for temperature, top_k, top_p, kept in [
        (1.0, 0, 0.8, 1),
        (2.0, 0, 0.72, 2),
        (2.0, 2, 0.72, 1),
        (2.0, 0, 0.7, 1),
    ]:
        assert filtered_scores(logits, temperature, top_k, top_p).isfinite().sum() == kept


def test_the_most_likely_token_always_passes_the_filters() -> None:
    for top_k, top_p in [(1, 1.0), (0, 1e-9), (1, 1e-9), (0, 1e-300)]:
        for dtype in (torch.float64, torch.float32):
            logits = rows([0.0, 9.0, 1.0], dtype=dtype)
            scores = filtered_scores(logits, 0.1, top_k, top_p)
            assert scores.tolist() == [[NOWHERE, 0.0, NOWHERE]]


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0, 2.0])
def test_the_mask_token_is_never_drawn_however_likely(temperature: float) -> None:
    logits = torch.zeros(64, 8)
    logits[:, 3] = 1000.0
    scores = perturbed_scores(
        suppress_mask_token(logits, 3), gumbel_table(1, 0, 64, 8), temperature, 0, 1.0
    )
    assert (scores.argmax(dim=1) != 3).all()
    assert not scores.isnan().any()


def test_ties_go_to_the_lowest_id() -> None:
    logits = torch.zeros(1, 40)
    logits[0, [7, 21, 38]] = 1.0
    assert perturbed_scores(logits, None, 0.0, 0, 1.0).argmax(dim=1).item() == 7


def test_temperature_zero_is_argmax_and_reads_no_noise() -> None:
    logits = torch.randn(5, 9, generator=torch.Generator().manual_seed(0))
    assert perturbed_scores(logits, None, 0.0, 2, 0.5) is logits


def test_noise_is_added_to_the_normalised_filtered_scores() -> None:
    logits = torch.randn(6, 10, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    noise = gumbel_table(7, 3, 6, 10)
    found = perturbed_scores(logits, noise, 0.7, 4, 1.0)
    expected = filtered_scores(logits, 0.7, 4, 1.0) + noise.double()
    assert torch.equal(found, expected)


def test_draws_follow_the_tempered_distribution() -> None:
    """One row, 20,000 seeds: frequencies within five standard errors."""
    logits = rows([1.0, 0.0, -1.0, 0.5])
    noise = torch.cat([gumbel_table(0, 2000 * i, 2000, 4) for i in range(10)])
    drawn = perturbed_scores(logits, noise, 0.7, 0, 1.0).argmax(dim=1)
    expected = torch.softmax(logits[0] / 0.7, dim=0)
    found = torch.bincount(drawn, minlength=4) / len(drawn)
    error = (expected * (1 - expected) / len(drawn)).sqrt()
    assert ((found - expected).abs() < 5 * error).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("temperature", [1e-30, 1e-3, 1e30])
def test_extreme_temperatures_draw_text_tokens(dtype: torch.dtype, temperature: float) -> None:
    logits = 20 * torch.randn(50, 8, generator=torch.Generator().manual_seed(2), dtype=dtype)
    logits = suppress_mask_token(logits, 3)
    scores = perturbed_scores(logits, gumbel_table(2, 0, 50, 8), temperature, 0, 1.0)
    assert not scores.isnan().any()
    if temperature < 1:
        assert torch.equal(scores.argmax(dim=1), logits.argmax(dim=1))
