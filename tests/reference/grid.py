"""The grid of the exactness tests, and the draft-free text of each of its points.

The text comes from the naive twin (no cache, no batch): one run of 2L+1 tokens a configuration.
Since a text that stops earlier is a prefix of it, that one run also says what every stop position
and every smaller limit must give.
"""

import random
from collections.abc import Iterator, Sequence
from functools import cache

import torch

from decoders.options import LOSSLESS, DecodeOptions
from decoders.request import Request
from models.transformer import Transformer
from tests.conftest import tiny_model
from tests.reference.decoding import NaiveResult, naive_decode
from tests.reference.running import prompt_of

DTYPES = [torch.float64, torch.float32]
TEMPERATURES = [0.0, 0.7, 1.0, 2.0]
BUDGETS = [0, 1, 4, 8, 20]
BLOCK = 4
LONGEST = 2 * BLOCK + 1
LENGTHS = range(LONGEST + 1)
RULES = [(1.0, "top1"), (0.9, "top1"), (1.0, "chosen"), (0.9, "chosen")]
STOP_IDS = (5, 9, 14, 19)
"""Ids that the random target says now and then, so that texts stop in all places."""


@cache
def model_of(dtype: torch.dtype) -> Transformer:
    return tiny_model(dtype=dtype)


@cache
def reference(
    dtype: torch.dtype, temperature: float, cap: float, confidence: str, length: int
) -> NaiveResult:
    """The draft-free text of 2L+1 tokens, stop ids ignored."""
    options = draft("standard", 0, temperature, cap, confidence)
    return naive_decode(model_of(dtype), prompt_of(length), options, seed=length)


def draft(
    method: str, budget: int, temperature: float, cap: float, confidence: str, **more: object
) -> DecodeOptions:
    values = {"ignore_stop": True, "max_new_tokens": LONGEST} | more
    return DecodeOptions.lenient(
        method=method,
        budget=budget,
        temperature=temperature,
        cap=cap,
        confidence=confidence,
        **values,
    )


def cut(ids: Sequence[int], limit: int, stop_ids: Sequence[int]) -> tuple[tuple[int, ...], str]:
    """What must come out when the text ends early."""
    for index, token in enumerate(ids[:limit]):
        if token in stop_ids:
            return tuple(ids[:index]), "stop"
    return tuple(ids[:limit]), "length"


def mixed_requests(
    dtype: torch.dtype, methods: Sequence[str] = LOSSLESS
) -> Iterator[tuple[Request, tuple[tuple[int, ...], str]]]:
    """All ``methods``, budgets, temperatures, rules and prompt lengths, with their outcomes."""
    settings = [
        (method, budget, temperature, length)
        for method in methods
        for budget in BUDGETS
        for temperature in TEMPERATURES
        for length in LENGTHS
    ]
    random.Random(1).shuffle(settings)
    for index, (method, budget, temperature, length) in enumerate(settings):
        cap, confidence = RULES[(index // 3) % len(RULES)]
        limit, ignore_stop = LONGEST - index % 4, index % 5 == 0
        options = draft(
            method,
            budget,
            temperature,
            cap,
            confidence,
            max_new_tokens=limit,
            ignore_stop=ignore_stop,
        )
        ids = reference(dtype, temperature, cap, confidence, length).token_ids
        stop_ids = () if ignore_stop else STOP_IDS
        request = Request(str(index), prompt_of(length), options, length)
        yield request, cut(ids, limit, stop_ids)
