"""The level-wise tree of whole steps against best-first search, one expansion at a time."""

import math

import numpy as np
import pytest

from decoders.set_steps import StepFactors, likeliest_steps
from decoders.set_tree import SetTree, grow_set_trees
from decoders.state import State, fill

MASK = 9
ROOT: State = (MASK, 1, MASK, MASK, MASK)


def factors_of(state: State, seed: int) -> StepFactors:
    """Random, and always the same for a state."""
    draw = np.random.default_rng((seed, *state))
    logits = np.where(np.array(state) == MASK, draw.normal(0, 1.5, len(state)), -math.inf)
    log_probs = np.log(-np.sort(-draw.dirichlet(np.ones(2) / 2, len(state)), axis=1))
    return StepFactors(logits, np.tile([2, 3], (len(state), 1)), log_probs)


def finished(state: State) -> bool:
    return MASK not in state


def grown(seed: int, budget: int, floor: float = 0.0, keep_ends: bool = False) -> SetTree:
    tree = SetTree(ROOT, budget, floor, finished, MASK, keep_ends)
    grow_set_trees(
        [tree], lambda asks: [[factors_of(s, seed) for s in states] for _, states in asks]
    )
    return tree


def best_first(seed: int, budget: int, floor: float) -> list[tuple[State, float]]:
    """The heaviest state that is left is final: all its steps are tried next."""
    left, kept = {ROOT: 0.0}, []
    while left and len(kept) <= budget:
        state = min(left, key=lambda s: (-left[s], MASK * -s.count(MASK), s))
        mass = left.pop(state)
        kept.append((state, mass))
        done = {s for s, _ in kept}
        for step, log_prob in likeliest_steps(factors_of(state, seed), 1000):
            child, found = fill(state, step), round(mass + log_prob, 4)
            if finished(child) or child in done or math.exp(found) < floor:
                continue
            left[child] = max(found, left.get(child, -math.inf))
    return kept[1:]


@pytest.mark.parametrize("floor", [0.0, 0.02])
@pytest.mark.parametrize("budget", [1, 2, 5, 12, 40])
def test_the_tree_holds_what_best_first_search_finds(budget: int, floor: float) -> None:
    for seed in range(15):
        found = [(n.state, n.log_mass) for n in grown(seed, budget, floor).kept]
        expected = best_first(seed, budget, floor)
        assert [mass for _, mass in found] == pytest.approx([mass for _, mass in expected])
        # (of equally heavy states at the cut either may stay)
        lightest = expected[-1][1] if expected else 0.0
        heavy = {s for s, mass in expected if mass > lightest + 1e-9}
        assert heavy <= {s for s, _ in found}


def test_a_smaller_budget_or_a_larger_floor_keeps_the_beginning() -> None:
    for seed in range(10):
        wide = [draft.state for draft in grown(seed, 20).drafts()]
        for budget in (1, 4, 9):
            assert [d.state for d in grown(seed, budget).drafts()] == wide[:budget]
        floored = [draft.state for draft in grown(seed, 20, 0.03).drafts()]
        assert floored == wide[: len(floored)]


def test_every_draft_is_reached_through_drafts_and_masses_are_probabilities() -> None:
    for seed in range(10):
        tree = grown(seed, 15)
        drafts = tree.drafts()
        states = {ROOT, *(draft.state for draft in drafts)}
        for node in tree.kept:
            assert states & node.parents.keys(), "it can be reached"
        for draft in drafts:
            assert 0 < draft.path_mass <= draft.mass + 1e-3 <= 1 + 2e-3


def test_finished_states_are_drafted_only_where_they_are_wanted() -> None:
    assert not any(finished(d.state) for d in grown(1, 10).drafts())
    drafts = grown(1, 10, keep_ends=True).drafts()
    ends = [d for d in drafts if finished(d.state)]
    assert 0 < len(ends) <= 10
    assert drafts[-len(ends) :] == ends, "they follow those that ride"
    assert [d.state for d in drafts[: -len(ends)]] == [d.state for d in grown(1, 10).drafts()]


def test_a_tree_behind_a_sure_end_of_the_text_is_grown_as_fast() -> None:
    """All of the likeliest steps end the text, in more ways than could be listed."""
    length, root = 16, (MASK,) * 16
    log_probs = np.tile(np.log([0.9, 0.1]), (length, 1))
    logits = np.array([9.0, *[0.0] * (length - 1)])

    def factors(state: State) -> StepFactors:
        open_logits = np.where(np.array(state) == MASK, logits, -math.inf)
        return StepFactors(open_logits, np.tile([2, 3], (length, 1)), log_probs)

    tree = SetTree(root, 4, 0.0, lambda state: state[0] != MASK, MASK)
    grow_set_trees([tree], lambda asks: [[factors(s) for s in states] for _, states in asks])
    assert [(d.state[0], d.state.count(2)) for d in tree.drafts()] == [(MASK, 1)] * 4


def test_the_mass_of_a_state_counts_every_way_to_it() -> None:
    folded = 0
    for seed in range(10):
        tree = grown(seed, 30)
        masses = {ROOT: 1.0} | {d.state: d.mass for d in tree.drafts()}
        for node in tree.kept:
            ways = [masses[p] * math.exp(lp) for p, lp in node.parents.items() if p in masses]
            assert masses[node.state] == pytest.approx(sum(ways))
            folded += len(ways) > 1
    assert folded > 10
