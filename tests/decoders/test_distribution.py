"""Over seeds, sampling follows the target's own distribution (under ``top1``), drafts or not.

A block of two positions and five text tokens: all 25 texts are enumerated exactly, and counted
over fixed seeds.
"""

import math
from functools import cache

import pytest
import torch
from scipy.stats import chisquare

from decoders.options import DecodeOptions
from decoders.request import Request
from models.target import Target
from models.transformer import Transformer
from tests.conftest import tiny_model, tiny_spec
from tests.reference.decoding import filtered, log_odds_of
from tests.reference.network import reference_logits
from tests.reference.running import run, tiny_proposers

MASK = 3
SEEDS = 1200
PROMPT = (4, 1)


@cache
def model() -> Transformer:
    """Blocks of two positions; text tokens are 0..2, 4 and 5."""
    return tiny_model(tiny_spec(2, vocab_size=6), seed=8)


def probabilities(state: list[int], position: int, options: DecodeOptions) -> list[float]:
    logits = masked_row(state, position)
    return [math.exp(score) for score in filtered(logits, options)]


def masked_row(state: list[int], position: int) -> list[float]:
    row = reference_logits(model(), state)[position]
    row[MASK] = -torch.inf
    return row.tolist()


def exact(num_blocks: int, options: DecodeOptions) -> dict[tuple[int, ...], float]:
    """The probability of every text of ``num_blocks`` blocks behind the prompt."""
    found: dict[tuple[int, ...], float] = {PROMPT: 1.0}
    for _ in range(num_blocks):
        found = {(*text, MASK, MASK): mass for text, mass in found.items()}
        for _ in range(2):
            found = spread(found, options)
    return {text[len(PROMPT) :]: mass for text, mass in found.items()}


def spread(
    states: dict[tuple[int, ...], float], options: DecodeOptions
) -> dict[tuple[int, ...], float]:
    """One commit from every state: the most confident position, each token by its probability."""
    found: dict[tuple[int, ...], float] = {}
    for state, mass in states.items():
        masked = [p for p, token in enumerate(state) if token == MASK]
        odds = {}
        for position in masked:
            row = masked_row(list(state), position)
            odds[position] = log_odds_of(row, max(range(len(row)), key=lambda v: row[v]))
        best = max(masked, key=lambda p: (odds[p], -p))
        for token, p in enumerate(probabilities(list(state), best, options)):
            if p > 0:
                child = (*state[:best], token, *state[best + 1 :])
                found[child] = found.get(child, 0.0) + mass * p
    return found


def counted(options: DecodeOptions) -> dict[tuple[int, ...], int]:
    """How often each text came out, over the seeds."""
    requests = [Request(str(seed), PROMPT, options, seed) for seed in range(SEEDS)]
    results = run(Target(model()), requests, tiny_proposers(), batch_size=64)
    counts: dict[tuple[int, ...], int] = {}
    for result in results.values():
        counts[result.token_ids] = counts.get(result.token_ids, 0) + 1
    return counts


def p_value(counts: dict[tuple[int, ...], int], expected: dict[tuple[int, ...], float]) -> float:
    """Chi-square with the rare texts pooled."""
    assert set(counts) <= set(expected), "nothing impossible was drawn"
    assert sum(expected.values()) == pytest.approx(1.0)
    seeds = sum(counts.values())
    common = [text for text, p in expected.items() if p * seeds >= 5]
    observed = [counts.get(text, 0) for text in common]
    wanted = [expected[text] * seeds for text in common]
    if len(common) < len(expected):
        observed.append(seeds - sum(observed))
        wanted.append(seeds - sum(wanted))
    assert len(common) >= 5
    return float(chisquare(observed, wanted).pvalue)


@pytest.mark.parametrize(
    ("method", "values"),
    [
        ("standard", {"temperature": 1.0}),
        ("standard", {"temperature": 0.8, "top_k": 4, "top_p": 0.9}),
        ("order", {"temperature": 1.3}),
        ("order", {"temperature": 1.3, "coupled": False}),
    ],
    ids=str,
)
def test_sampled_blocks_follow_exact_enumeration(method: str, values: dict[str, float]) -> None:
    options = DecodeOptions.lenient(
        method=method, budget=4, hedge=1.0, max_new_tokens=2, ignore_stop=True, **values
    )
    counts = counted(options)
    assert p_value(counts, exact(1, options)) > 1e-3


def test_two_blocks_follow_exact_enumeration() -> None:
    """The second block is drawn behind what the first one drew."""
    options = DecodeOptions(temperature=0.5, max_new_tokens=4, ignore_stop=True)
    counts = counted(options)
    assert p_value(counts, exact(2, options)) > 1e-3


def test_the_test_can_fail() -> None:
    """Counts of one temperature against the enumeration of another."""
    options = DecodeOptions(temperature=1.0, max_new_tokens=2, ignore_stop=True)
    other = DecodeOptions(temperature=1.4, max_new_tokens=2, ignore_stop=True)
    assert p_value(counted(options), exact(1, other)) < 1e-3
