"""How long a draw lasts: at T>0, with shared noise, the chance that a position's first candidate is
still drawn when the target comes to fill it (SPOT section 4.3; fitted on recorded runs).

The chance is read from the perturbed margin, the lead of the first candidate over the second after
noise: ``sigmoid(scale * margin)``.
"""

import numpy as np
from numpy.typing import NDArray

SCALES = np.geomspace(0.1, 10.0, 121)
"""Candidates of :func:`fit_survival_scale`."""

Floats = NDArray[np.floating]


def survival_log_probs(margins: Floats, scale: float) -> tuple[Floats, Floats]:
    """Log-probabilities that the first, or else the second, candidate is drawn in the end."""
    scaled = margins.astype(np.float64) * scale
    return -np.logaddexp(0, -scaled), -np.logaddexp(0, scaled)


def fit_survival_scale(margins: Floats, survived: NDArray[np.bool_]) -> float:
    """The scale at which ``survived`` is most likely; both are ``[n]``, margins finite or inf.

    Raises ``ValueError`` when there is nothing to fit.
    """
    if not len(margins):
        raise ValueError("survival: no draw to learn from")
    losses = []
    for scale in SCALES:
        first, second = survival_log_probs(margins, float(scale))
        losses.append(-np.where(survived, first, np.maximum(second, -100.0)).mean())
    return float(SCALES[int(np.argmin(losses))])
