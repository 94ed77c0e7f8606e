"""A tiny target that is now sure and now not, and its threshold decoding by the naive twin."""

from functools import cache

import torch

from decoders.options import DecodeOptions
from models.transformer import Transformer
from tests.conftest import tiny_model, tiny_spec
from tests.reference.decoding import NaiveResult, naive_decode
from tests.reference.running import prompt_of

TAUS = (0.5, 0.7, 0.9, 0.95)
SHARPNESS = 9.0


@cache
def sharp_model(dtype: torch.dtype = torch.float64, block: int = 4) -> Transformer:
    """Random weights whose logits are stretched, so that confidences lie on both sides of tau."""
    model = tiny_model(tiny_spec(block), dtype)
    with torch.no_grad():
        model.lm_head.weight.mul_(SHARPNESS)
    return model


@cache
def threshold_text(
    dtype: torch.dtype, tau: float, temperature: float, confidence: str, length: int, limit: int
) -> NaiveResult:
    """What threshold decoding writes behind ``prompt_of(length)``, stop ids ignored."""
    options = DecodeOptions.lenient(
        method="threshold",
        tau=tau,
        temperature=temperature,
        confidence=confidence,
        ignore_stop=True,
        max_new_tokens=limit,
    )
    return naive_decode(sharp_model(dtype), prompt_of(length), options, seed=length)
