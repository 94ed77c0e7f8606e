"""The output cannot depend on the drafter: its weights, its settings, or sheer nonsense."""

import random
from collections.abc import Sequence

import pytest
import torch

from decoders.options import LOSSLESS
from decoders.proposers.base import Draft, Proposer, View
from decoders.request import Request
from decoders.state import fill, masked_positions
from models.target import Target
from tests.conftest import tiny_model, tiny_spec
from tests.reference.grid import (
    BLOCK,
    BUDGETS,
    DTYPES,
    LENGTHS,
    RULES,
    TEMPERATURES,
    draft,
    model_of,
    reference,
)
from tests.reference.running import (
    commits,
    outcome,
    prompt_of,
    run,
    run_one,
    tiny_proposers,
)

PROPOSERS = tiny_proposers()


@pytest.mark.parametrize("seed", range(3))
def test_gamma_hedge_and_the_drafters_weights_never_change_the_output(seed: int) -> None:
    dtype = torch.float64
    proposers = tiny_proposers(seed=seed + 10)
    for index, (gamma, hedge) in enumerate([(0.0, 0.0), (0.0, 1.0), (0.05, 0.6), (0.4, 1.0)]):
        for temperature in (0.0, 1.0):
            cap, confidence = RULES[(index + seed) % 4]
            options = draft("order", 7, temperature, cap, confidence, gamma=gamma, hedge=hedge)
            for length in (0, 3, 5, 8):
                result = run_one(
                    Target(model_of(dtype)), prompt_of(length), options, length, proposers
                )
                expected = reference(dtype, temperature, cap, confidence, length).token_ids
                assert result.token_ids == expected


class RandomProposer:
    """Hypothetical states without any sense: right, wrong, contradicting the root, unordered."""

    def __init__(self, seed: int, truths: Sequence[dict[int, int]]) -> None:
        self.random = random.Random(seed)
        self.truths = truths

    def propose(self, views: Sequence[View]) -> list[list[Draft]]:
        return [self._drafts(view) for view in views]

    def _drafts(self, view: View) -> list[Draft]:
        found = {}
        for _ in range(self.random.randint(0, view.options.budget)):
            state = view.root
            for position in masked_positions(state, view.end.mask_id):
                if self.random.random() < 0.5:
                    token = self.random.choice(self.truths).get(position, 5)
                    state = fill(state, ((position, token),))
            if self.random.random() < 0.1:
                state = fill(state, ((self.random.randrange(len(state)), 6),))
            if not view.end.finished(state) and state != view.root:
                found[state] = Draft(state, self.random.random())
        return list(found.values())


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_output_cannot_depend_on_the_proposer(temperature: float) -> None:
    accepted = 0
    for length in LENGTHS:
        expected = reference(torch.float64, temperature, 1.0, "top1", length)
        truths = [
            {p % BLOCK: t for step in expected.steps[b : b + BLOCK] for p, t in step}
            for b in range(0, len(expected.steps), BLOCK)
        ]
        for seed in range(3):
            proposers: dict[str, Proposer] = {"chain": RandomProposer(seed, truths)}
            options = draft("chain", 12, temperature, 1.0, "top1")
            target = Target(model_of(torch.float64))
            result = run_one(target, prompt_of(length), options, length, proposers)
            assert result.token_ids == expected.token_ids
            assert commits(result) == list(expected.steps)
            accepted += sum(round.accepted for round in result.rounds)
    assert accepted > 30, "right drafts were among them"


WIDE = 32
WIDE_PROMPTS = (0, 1, 31, 33, 64)
ROWS = [(a, b, a + b, a + 2 * b, a + 3 * b, a + 4 * b) for a in range(5) for b in range(5)]
"""An orthogonal array: modulo 5, any two columns show all 25 pairs of values."""


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_blocks_of_32_equal_standard_pairwise(row: tuple[int, ...]) -> None:
    columns = [value % 5 for value in row]
    dtype, temperature = DTYPES[columns[0] % 2], TEMPERATURES[columns[1] % 4]
    budget, length = BUDGETS[columns[2]], WIDE_PROMPTS[columns[3]]
    cap, confidence = RULES[columns[4] % 4]
    method, batch_size = [("chain", 1), ("order", 1), ("chain", 3), ("order", 3)][columns[5] % 4]
    model = tiny_model(tiny_spec(WIDE, vocab_size=64), dtype, seed=3)
    options = draft(
        method, budget, temperature, cap, confidence, max_new_tokens=40, ignore_stop=False
    )
    requests = [
        Request(str(i), prompt_of(length + i, i, 64), options, noise_seed=i)
        for i in range(batch_size)
    ]
    results = run(Target(model), requests, PROPOSERS, batch_size)
    baseline = [Request(r.id, r.prompt_ids, options.draft_free(), r.noise_seed) for r in requests]
    alone = run(Target(model), baseline)
    for request in requests:
        assert outcome(results[request.id]) == outcome(alone[request.id])
        assert commits(results[request.id]) == commits(alone[request.id])


@pytest.mark.parametrize("method", LOSSLESS)
def test_without_coupling_every_method_still_equals_its_own_draft_free_run(method: str) -> None:
    """Independent-sample verification: each step draws anew, as a function of seed and fills."""
    target = Target(model_of(torch.float64))
    for temperature in (0.7, 2.0):
        for length in LENGTHS:
            values = {"coupled": False, "max_new_tokens": 12}
            free, drafting = (
                run_one(
                    target,
                    prompt_of(length),
                    draft(name, 6, temperature, 1.0, "top1", **values),
                    length,
                    PROPOSERS,
                )
                for name in ("standard", method)
            )
            assert commits(drafting) == commits(free)


def test_coupled_and_uncoupled_draws_differ_and_coupling_is_what_gets_hot_drafts_accepted() -> None:
    target = Target(tiny_model(tiny_spec(16)))
    accepted, texts = {}, {}
    for coupled in (True, False):
        options = draft("oracle-position", 15, 3.0, 1.0, "top1", coupled=coupled, max_new_tokens=64)
        requests = [Request(str(n), prompt_of(n), options, n) for n in range(12)]
        results = run(target, requests, PROPOSERS, batch_size=6)
        accepted[coupled] = sum(r.accepted for x in results.values() for r in x.rounds)
        texts[coupled] = [results[r.id].token_ids for r in requests]
    assert texts[True] != texts[False]
    assert accepted[True] > 3 * accepted[False]
