"""Rows made by hand."""

from decoders.options import DecodeOptions
from tune.row import Certificate, Fidelity, Spread, TrialRow


def row(
    key: str,
    options: DecodeOptions,
    fidelity: Fidelity = "live",
    speed: float = 1.0,
    nfe_factor: float = 1.0,
    certificate: Certificate | None = "exact",
    correct: str = "++++++++",
) -> TrialRow:
    """A finished row; ``correct`` has a ``+`` for every right reply."""
    return TrialRow(
        key=key,
        fidelity=fidelity,
        options=options,
        n=len(correct),
        nfe=round(800 / nfe_factor),
        nfe_factor=nfe_factor,
        nfe_factor_reference=nfe_factor,
        speed=Spread(median=speed, q25=speed * 0.9, q75=speed * 1.1),
        speed_reference=speed,
        tokens_per_second=100 * speed,
        certificate=certificate if fidelity == "live" else None,
        num_different=0 if certificate == "exact" else 1,
        correct={f"problem-{i}": mark == "+" for i, mark in enumerate(correct)},
    )


def standard(cap: float = 1.0) -> DecodeOptions:
    return DecodeOptions(method="standard", cap=cap)


def chain(budget: int, cap: float = 1.0) -> DecodeOptions:
    return DecodeOptions(method="chain", budget=budget, cap=cap)
