"""How long a draw lasts: the fitted scale is the one that the outcomes were drawn with."""

import numpy as np
import pytest

from drafters.survival import fit_survival_scale, survival_log_probs


@pytest.mark.parametrize("scale", [0.2, 1.0, 4.0])
def test_the_fitted_scale_is_the_one_that_draws_survived_with(scale: float) -> None:
    draw = np.random.default_rng(0)
    margins = draw.exponential(1.5, 20_000).astype(np.float32)
    survived = draw.random(len(margins)) < 1 / (1 + np.exp(-scale * margins))
    assert fit_survival_scale(margins, survived) == pytest.approx(scale, rel=0.1)


def test_first_or_second_is_certain() -> None:
    first, second = survival_log_probs(np.array([0.0, 0.7, 30.0, np.inf], dtype=np.float32), 1.3)
    np.testing.assert_allclose(np.exp(first) + np.exp(second), 1.0)
    assert np.exp(first[0]) == pytest.approx(0.5)
    assert first[-1] == 0.0


def test_a_single_candidate_never_spoils_the_fit() -> None:
    margins = np.array([np.inf, 1.0, 1.0, np.inf], dtype=np.float32)
    assert np.isfinite(fit_survival_scale(margins, np.array([True, True, False, False])))


def test_nothing_to_learn_from_is_said() -> None:
    with pytest.raises(ValueError, match="no draw"):
        fit_survival_scale(np.array([]), np.array([], dtype=bool))
