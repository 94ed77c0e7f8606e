"""Exactness where the full product is too large: every pair of values, at L = 32.

On a random target, and on the bundled one with its own order model and graphs.
"""

import random
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import combinations, product
from typing import Any

import pytest
import torch

from decoders.options import LOSSLESS
from decoders.proposers.base import Proposer
from decoders.proposers.registry import open_proposers
from decoders.request import Request
from drafters.config import DrafterConfig
from models.checkpoint import find_checkpoint
from models.config import TargetConfig
from models.loading import load_model
from models.target import Target
from models.text import TextCodec
from tasks.bundled import problems
from tests.conftest import tiny_model, tiny_spec
from tests.reference.grid import draft
from tests.reference.running import commits, outcome, prompt_of, run, tiny_proposers

FACTORS: dict[str, Sequence[Any]] = {
    "method": LOSSLESS,
    "budget": (0, 1, 4, 8, 20),
    "temperature": (0.0, 0.7, 1.0, 2.0),
    "cap": (1.0, 0.9),
    "confidence": ("top1", "chosen"),
    "dtype": ("float64", "float32"),
    "batch": (1, 3),
    "stop": ("limit", "stop id"),
}


def pairwise(factors: Mapping[str, Sequence[Any]], seed: int = 0) -> list[dict[str, Any]]:
    """Rows in which every two values of two factors meet at least once (greedy, seeded)."""
    draw = random.Random(seed)
    names = list(factors)
    left = {
        ((a, x), (b, y))
        for a, b in combinations(names, 2)
        for x, y in product(factors[a], factors[b])
    }
    rows = []
    while left:
        tries = [{name: draw.choice(factors[name]) for name in names} for _ in range(40)]
        (a, x), (b, y) = min(left, key=repr)
        tries = [row | {a: x, b: y} for row in tries]
        best = max(tries, key=lambda row: len(covered(row) & left))
        left -= covered(best)
        rows.append(best)
    return rows


def covered(row: Mapping[str, Any]) -> set[Any]:
    """The pairs that a row holds."""
    return set(combinations(row.items(), 2))


ROWS = pairwise(FACTORS)


def test_the_rows_hold_every_pair() -> None:
    held = set().union(*map(covered, ROWS))
    for a, b in combinations(FACTORS, 2):
        for pair in product(FACTORS[a], FACTORS[b]):
            assert ((a, pair[0]), (b, pair[1])) in held
    assert len(ROWS) < 80


def check(
    target: Target,
    prompts: Sequence[tuple[int, ...]],
    proposers: Mapping[str, Proposer],
    row: Mapping[str, Any],
    limit: int,
) -> None:
    """Both runs commit the same, in the same order."""
    asked = []
    for method in ("standard", row["method"]):
        options = draft(
            method,
            row["budget"],
            row["temperature"],
            row["cap"],
            row["confidence"],
            max_new_tokens=limit,
            ignore_stop=row["stop"] == "limit",
        )
        asked.append([Request(str(n), p, options, n) for n, p in enumerate(prompts)])
    free = run(target, asked[0])
    drafted = run(target, asked[1], proposers, row["batch"])
    for name, result in drafted.items():
        assert outcome(result) == outcome(free[name]), name
        assert commits(result) == commits(free[name]), name


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(map(str, row.values())))
def test_blocks_of_32_on_a_random_target(row: dict[str, Any]) -> None:
    target = random_target(row["dtype"])
    prompts = [prompt_of(n) for n in (0, 31, 33)]
    check(target, prompts, tiny_proposers(), row, limit=45)


@cache
def random_target(dtype: str) -> Target:
    return Target(tiny_model(tiny_spec(32), getattr(torch, dtype)))


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS[::3], ids=lambda row: "-".join(map(str, row.values())))
def test_the_bundled_target(row: dict[str, Any]) -> None:
    """Real prompts, from the middle of a block on; a third of the rows, since it is slower."""
    target, prompts, proposers = bundled(row["dtype"])
    check(target, prompts[: row["batch"]], proposers, row, limit=40)


@cache
def bundled(dtype: str) -> tuple[Target, list[tuple[int, ...]], Mapping[str, Proposer]]:
    folder = find_checkpoint("sdar-tiny")
    target = Target(load_model(TargetConfig(path="sdar-tiny", dtype=dtype)))
    codec = TextCodec(folder)
    asked = [problem for task in ("words", "code") for problem in problems(task, "heldout", 2, 3)]
    prompts = [tuple(codec.encode_chat([{"role": "user", "content": p.prompt}])) for p in asked]
    return target, prompts, open_proposers(folder, target.spec, DrafterConfig(), set(LOSSLESS))
