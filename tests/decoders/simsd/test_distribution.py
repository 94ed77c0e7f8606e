"""Rejection keeps the target's distribution where its guarantee holds: the verifier's slots exact
(one layer), the position chosen by the noise-free top-1, temporal order, the rest drafted again."""

import pytest
import torch
from scipy.stats import chisquare

from decoders.options import DecodeOptions
from decoders.request import Request
from decoders.simsd.companion import SimSD
from decoders.simsd.small_model import SmallModel
from models.target import Target
from models.transformer import Transformer
from tests.conftest import tiny_model, tiny_spec
from tests.reference.network import reference_logits
from tests.reference.running import run

ALPHA = 1e-4
N = 600
L, VOCAB, MASK = 2, 7, 3
PROMPT = (4, 6)
SPEC = tiny_spec(L, VOCAB).model_copy(update={"num_layers": 1})


def spread(seed: int) -> Transformer:
    """Random weights whose distributions differ from position to position, and are not flat."""
    model = tiny_model(SPEC, seed=seed)
    with torch.no_grad():
        model.lm_head.weight.mul_(3)
    return model


TARGET, SMALL = spread(0), spread(1)


def conditional(
    model: Transformer, state: tuple[int, ...], temperature: float
) -> dict[int, torch.Tensor]:
    """Each open position's distribution, at a temperature."""
    logits = reference_logits(model, (*PROMPT, *state))[len(PROMPT) :]
    logits[:, MASK] = -torch.inf
    return {i: torch.softmax(logits[i] / temperature, dim=0) for i in range(L) if state[i] == MASK}


def exact_joint(temperature: float) -> dict[tuple[int, ...], float]:
    """The target's conditionals in the drafter's order (noise-free top-1), multiplied out."""
    found = {}
    first = most_sure((MASK,) * L)
    for token, p in enumerate(conditional(TARGET, (MASK,) * L, temperature)[first].tolist()):
        if token == MASK:
            continue
        state = tuple(token if i == first else MASK for i in range(L))
        ((second, row),) = conditional(TARGET, state, temperature).items()
        for other, q in enumerate(row.tolist()):
            ids = tuple(other if i == second else token for i in range(L))
            found[ids] = p * q
    return found


def most_sure(state: tuple[int, ...]) -> int:
    rows = conditional(SMALL, state, 1.0)
    return max(rows, key=lambda i: float(rows[i].max()))


@pytest.mark.parametrize(("temperature", "gamma"), [(1.0, 0), (1.5, 1)])
def test_blocks_follow_the_targets_conditionals(temperature: float, gamma: int) -> None:
    options = DecodeOptions(
        method="simsd", gamma=gamma, temperature=temperature, max_new_tokens=L, ignore_stop=True
    )
    requests = [Request(str(seed), PROMPT, options, seed) for seed in range(N)]
    companion = SimSD(SmallModel(Target(SMALL)))
    results = run(Target(TARGET), requests, {"simsd": companion}, batch_size=100)
    counts: dict[tuple[int, ...], int] = {}
    for result in results.values():
        counts[result.token_ids] = counts.get(result.token_ids, 0) + 1
    expected = {ids: N * p for ids, p in exact_joint(temperature).items()}
    assert not any(MASK in ids for ids in counts)
    seen = [(counts.get(ids, 0), x) for ids, x in expected.items() if x >= 5]
    seen.append((N - sum(n for n, _ in seen), N - sum(x for _, x in seen)))
    assert chisquare(*zip(*seen, strict=True)).pvalue > ALPHA
    accepted = sum(r.accepted for result in results.values() for r in result.rounds)
    assert 0.2 < accepted / companion.num_tested < 0.95, "both outcomes are met"
