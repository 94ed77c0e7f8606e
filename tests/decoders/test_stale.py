"""What is kept of a state's distribution is exact, although it is cut."""

import numpy as np
import pytest
import torch

from decoders.noise import gumbel_table
from decoders.sampling import log_odds, perturbed_scores, suppress_mask_token
from decoders.stale import TOP_CANDIDATES, TOP_PROBABILITIES, Stale, summarize, top_entries

ROWS, MASK = 5, 3


def logits_of(vocab: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(vocab)
    return suppress_mask_token(3 * torch.randn(ROWS, vocab, generator=generator, dtype=dtype), MASK)


def stale_of(logits: torch.Tensor, temperature: float) -> Stale:
    noise = gumbel_table(5, 0, *logits.shape)
    scores = perturbed_scores(logits, noise, temperature, 0, 1.0)
    odds = log_odds(logits, logits.argmax(dim=1)).numpy()
    return summarize(np.arange(2, 2 + ROWS), logits, scores, odds)


@pytest.mark.parametrize("vocab", [6, 20, 90])
def test_probabilities_are_those_of_the_whole_vocabulary(vocab: int) -> None:
    logits = logits_of(vocab)
    stale = stale_of(logits, 0.0)
    whole = torch.log_softmax(logits, dim=1)
    kept = min(vocab, TOP_PROBABILITIES)
    expected = whole.sort(dim=1, descending=True)
    assert stale.log_probs.shape == stale.ids.shape == (ROWS, kept)
    np.testing.assert_allclose(stale.log_probs, expected.values[:, :kept], rtol=1e-6)
    np.testing.assert_array_equal(stale.ids, expected.indices[:, :kept])
    assert stale.positions.tolist() == [2, 3, 4, 5, 6]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_entropy_is_exact_and_not_of_the_cut_row(dtype: torch.dtype) -> None:
    logits = logits_of(400, dtype)
    probabilities = torch.softmax(logits.double(), dim=1)
    expected = -(probabilities * probabilities.clamp(min=1e-300).log()).sum(dim=1)
    found = stale_of(logits, 0.0).entropy
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert np.isfinite(found).all()


def test_candidates_are_raw_at_temperature_zero() -> None:
    stale = stale_of(logits_of(30), 0.0)
    np.testing.assert_array_equal(stale.candidates, stale.ids[:, :TOP_CANDIDATES])
    np.testing.assert_array_equal(stale.scores, stale.log_probs[:, :TOP_CANDIDATES])


def test_candidates_are_what_the_shared_noise_would_draw_above_zero() -> None:
    logits = logits_of(90)
    stale = stale_of(logits, 2.0)
    scores = torch.log_softmax(logits / 2, dim=1) + gumbel_table(5, 0, ROWS, 90)
    expected = scores.sort(dim=1, descending=True)
    np.testing.assert_array_equal(stale.candidates, expected.indices[:, :TOP_CANDIDATES])
    np.testing.assert_allclose(stale.scores, expected.values[:, :TOP_CANDIDATES], rtol=1e-6)
    assert (stale.candidates[:, 0] == scores.argmax(dim=1).numpy()).all()
    inside = [set(stale.candidates[r]) <= set(stale.ids[r]) for r in range(ROWS)]
    assert not all(inside), "under noise candidates are often outside the raw top"


def test_a_small_vocabulary_keeps_what_it_has() -> None:
    stale = stale_of(logits_of(5), 1.0)
    assert stale.log_probs.shape == (ROWS, 5)
    assert stale.candidates.shape == (ROWS, 5)
    assert (stale.ids[:, -1] == MASK).all()
    assert np.isneginf(stale.log_probs[:, -1]).all()
    assert np.isfinite(stale.entropy).all()


def test_a_row_without_rival_tokens_is_certain() -> None:
    logits = torch.full((1, 6), -torch.inf)
    logits[0, 4] = 1.5
    odds = np.array([np.inf])
    stale = summarize(np.array([0]), logits, logits, odds)
    assert stale.entropy[0] == 0.0
    assert stale.log_probs[0, 0] == 0.0
    assert stale.candidates[0, 0] == 4
    assert stale.rank_log_odds[0] == np.inf


def test_tied_tokens_stand_in_the_order_in_which_the_target_takes_them() -> None:
    """Half-precision logits tie often; the first candidate must be the token to be committed."""
    generator = torch.Generator().manual_seed(0)
    logits = (3 * torch.randn(400, 1024, generator=generator)).bfloat16().float()
    tied = (logits == logits.amax(dim=1, keepdim=True)).sum(dim=1) > 1
    assert tied.sum() > 5
    odds = np.zeros(400)
    stale = summarize(np.arange(400), logits, logits, odds)
    np.testing.assert_array_equal(stale.candidates[:, 0], logits.argmax(dim=1))
    steps = np.diff(stale.log_probs, axis=1)
    assert (steps <= 0).all()
    assert (np.diff(stale.ids, axis=1)[steps == 0] > 0).all()
    by_id = logits.sort(dim=1, descending=True, stable=True).indices
    np.testing.assert_array_equal(stale.ids, by_id[:, :TOP_PROBABILITIES])
    # Also where the ids that are equal reach beyond what is kept.
    for most in (1, 3):
        assert torch.equal(top_entries(logits, most)[1], by_id[:, :most])


def test_tokens_that_rounding_makes_equal_keep_the_order_of_their_logits() -> None:
    logits = torch.full((1, 4096), 0.1)
    logits[0, 1000] = 0.1 + 1e-8
    assert torch.log_softmax(logits, dim=1).unique().numel() == 1
    stale = summarize(np.arange(1), logits, logits, np.zeros(1))
    assert stale.candidates[0, :3].tolist() == [1000, 0, 1]
