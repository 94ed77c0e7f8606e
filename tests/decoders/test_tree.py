"""The draft tree: level-wise search keeps what sequential best-first search keeps."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoders.proposers.base import Draft
from decoders.state import BlockEnd, State, fill, masked_positions
from decoders.tree import Ask, Candidates, DraftTree, Scores, grow_trees
from tests.reference.tree import best_first, fills

MASK, STOP = 3, 1
EXACT = settings(derandomize=True, deadline=None, max_examples=80)


@dataclass(frozen=True)
class Problem:
    """A root, candidates, and a score function that depends on the state in a random way."""

    root: State
    candidates: Candidates
    end: BlockEnd
    seed: int
    step: float = 0.0
    """Above 0: log-factors are whole multiples of it, so that ties abound."""

    def log_q(self, state: State) -> Scores:
        draw = random.Random(f"{self.seed}|{state}")
        weights = [draw.expovariate(1.0) ** 3 if t == MASK else 0.0 for t in state]
        with np.errstate(divide="ignore"):
            scores = np.log(np.array(weights) / sum(weights))
        return (
            np.minimum(-self.step, np.round(scores / self.step) * self.step)
            if self.step
            else scores
        )

    def factors(self, state: State) -> dict[tuple[int, int], float]:
        if MASK not in state:
            return {}
        scores = self.log_q(state)
        return {
            (p, int(token)): float(scores[p] + log_prob)
            for p in masked_positions(state, MASK)
            for token, log_prob in zip(
                self.candidates.tokens[p], self.candidates.log_probs[p], strict=True
            )
            if np.isfinite(scores[p] + log_prob)
        }

    def tree(self, budget: int, floor: float = 0.0) -> DraftTree:
        return DraftTree(self.root, self.candidates, budget, floor, self.end.finished)

    def drafts(self, budget: int, floor: float = 0.0) -> list[Draft]:
        tree = self.tree(budget, floor)
        grow_trees([tree], scorer([self]))
        return tree.drafts()

    def best_first(self, budget: int, floor: float = 0.0) -> dict[State, float]:
        return best_first(self.root, self.factors, budget, floor, self.end.finished)


def scorer(problems: list[Problem]) -> Callable[[list[Ask]], list[list[Scores]]]:
    return lambda asks: [[problems[i].log_q(state) for state in states] for i, states in asks]


@st.composite
def problems(draw: st.DrawFn, step: float = 0.0) -> Problem:
    length = draw(st.integers(1, 6))
    seed = draw(st.integers(0, 10**6))
    rng = np.random.default_rng(seed)
    root = [MASK if rng.random() < 0.7 else 7 for _ in range(length)]
    root[int(rng.integers(length))] = MASK
    tokens = np.stack([rng.permutation([STOP, 4, 5, 6])[:2] for _ in range(length)])
    first = rng.uniform(0.4, 1.0, length)
    hedged = rng.random(length) < 0.6
    second = np.where(hedged, (1 - first) * rng.random(length), 0.0)
    with np.errstate(divide="ignore"):
        log_probs = np.log(np.stack([first, second], axis=1))
    if step:
        log_probs = np.round(log_probs / step) * step
    limit = draw(st.integers(1, length + 2))
    while all(t != MASK for t in root[:limit]):
        limit += 1
    stop_ids = (STOP,) if draw(st.booleans()) else ()
    return Problem(
        tuple(root),
        Candidates(tokens.astype(np.int64), log_probs),
        BlockEnd(MASK, 0, limit, stop_ids),
        seed,
        step,
    )


@EXACT
@given(problems(), st.integers(0, 24))
def test_level_wise_search_equals_sequential_best_first_search(
    problem: Problem, budget: int
) -> None:
    if not problem.end.finished(problem.root):
        found = {draft.state for draft in problem.drafts(budget)}
        assert found == set(problem.best_first(budget))


@EXACT
@given(problems(), st.integers(0, 24))
def test_where_full_states_are_kept_the_search_still_equals_best_first_search(
    problem: Problem, budget: int
) -> None:
    """Nobody asks for the scores of a full state: it has no children."""
    asked: list[State] = []

    def score(asks: list[Ask]) -> list[list[Scores]]:
        asked.extend(state for _, states in asks for state in states)
        return scorer([problem])(asks)

    tree = DraftTree(problem.root, problem.candidates, budget, 0.0, problem.end.text_ended)
    grow_trees([tree], score)
    found = [draft.state for draft in tree.drafts()]
    slow = best_first(problem.root, problem.factors, budget, 0.0, problem.end.text_ended)
    assert set(found) == set(slow)
    assert all(MASK in state for state in asked)


@EXACT
@given(problems(), st.integers(0, 24), st.sampled_from([0.01, 0.1, 0.3]))
def test_the_floor_drops_light_nodes_and_no_others(
    problem: Problem, budget: int, floor: float
) -> None:
    if not problem.end.finished(problem.root):
        found = {draft.state for draft in problem.drafts(budget, floor)}
        light = {s for s, mass in problem.best_first(budget).items() if math.exp(mass) < floor}
        assert found == set(problem.best_first(budget)) - light


@EXACT
@given(problems(), st.integers(0, 24), st.sampled_from([0.0, 0.05]))
def test_kept_nodes_are_reachable_unfinished_unrepeated_and_within_budget(
    problem: Problem, budget: int, floor: float
) -> None:
    drafts = problem.drafts(budget, floor)
    seen = {problem.root}
    assert len(drafts) <= budget
    for draft in drafts:
        assert draft.state not in seen, "no state twice"
        parents = [
            fill(draft.state, ((p, MASK),))
            for p, (now, then) in enumerate(zip(draft.state, problem.root, strict=True))
            if now != then
        ]
        assert any(parent in seen for parent in parents), "a kept parent stands before its child"
        assert not problem.end.finished(draft.state)
        seen.add(draft.state)


@EXACT
@given(problems(), st.integers(1, 24))
def test_a_mass_is_the_sum_over_its_paths_through_kept_nodes(problem: Problem, budget: int) -> None:
    drafts = problem.drafts(budget)
    masses = {problem.root: 1.0} | {draft.state: draft.mass for draft in drafts}
    for draft in drafts:
        filled = [
            (p, now)
            for p, (now, then) in enumerate(zip(draft.state, problem.root, strict=True))
            if now != then
        ]
        total = 0.0
        for path in permutations(filled):
            state, mass = problem.root, 1.0
            for commit in path:
                mass *= math.exp(problem.factors(state).get(commit, -math.inf))
                state = fill(state, (commit,))
                mass *= state in masses
            total += mass
        assert draft.mass == pytest.approx(total, rel=1e-9)
        parents = {fill(draft.state, ((p, MASK),)) for p, _ in filled}
        assert draft.mass <= sum(masses.get(parent, 0.0) for parent in parents) + 1e-12
        assert draft.mass <= 1 + 1e-12


EVERY = st.one_of(problems(), problems(step=0.25), problems(step=8.0))
"""Without ties, with many, and with hardly anything else."""


@EXACT
@given(EVERY, st.integers(0, 20), st.sampled_from([1, 2, 9]))
def test_a_smaller_budgets_list_is_the_beginning_of_a_larger_ones(
    problem: Problem, budget: int, more: int
) -> None:
    larger = problem.drafts(budget + more)
    assert cuts(problem.drafts(budget)) == cuts(larger)[:budget]


@EXACT
@given(EVERY, st.integers(0, 20), st.data())
def test_a_floor_cuts_the_list_where_path_masses_fall_below_it(
    problem: Problem, budget: int, data: st.DataObject
) -> None:
    """Also at a floor that is a path mass itself, to the last bit."""
    free = cuts(problem.drafts(budget))
    masses = [mass for _, mass in free if 0 < mass < 1]
    floor = data.draw(st.sampled_from([0.01, 0.1, 0.3, *masses]))
    assert cuts(problem.drafts(budget, floor)) == [cut for cut in free if cut[1] >= floor]


@EXACT
@given(EVERY, st.integers(0, 24))
def test_path_masses_are_those_of_the_best_paths_and_never_rise(
    problem: Problem, budget: int
) -> None:
    if not problem.end.finished(problem.root):
        drafts = problem.drafts(budget)
        expected = problem.best_first(budget).values()
        found = [draft.path_mass for draft in drafts]
        assert found == sorted(found, reverse=True)
        masses = sorted(map(math.exp, expected), reverse=True)
        assert found == pytest.approx(masses, rel=2e-4, abs=1e-12)
        assert all(draft.mass >= draft.path_mass * 0.999 for draft in drafts)


def cuts(drafts: list[Draft]) -> list[tuple[State, float]]:
    """What does not depend on how many drafts there are."""
    return [(draft.state, draft.path_mass) for draft in drafts]


@EXACT
@given(problems(step=0.25), st.integers(0, 20))
def test_among_ties_the_same_masses_are_kept(problem: Problem, budget: int) -> None:
    """Which of two equal nodes is kept is free; the masses kept, and their parents, are not."""
    if problem.end.finished(problem.root):
        return
    tree = problem.tree(budget)
    grow_trees([tree], scorer([problem]))
    found = sorted(round(node.log_mass, 6) for node in tree.kept.values())
    expected = sorted(round(mass, 6) for mass in problem.best_first(budget).values())
    assert found == expected
    kept = {draft.state for draft in tree.drafts()}
    assert kept == set(tree.kept), "every kept node is reachable"


@EXACT
@given(st.lists(problems(), min_size=1, max_size=4), st.integers(0, 8))
def test_trees_that_grow_together_equal_each_alone(many: list[Problem], budget: int) -> None:
    trees = [problem.tree(budget + i) for i, problem in enumerate(many)]
    grow_trees(trees, scorer(many))
    together = [tree.drafts() for tree in trees]
    assert together == [problem.drafts(budget + i) for i, problem in enumerate(many)]


def test_a_level_is_scored_in_one_call_and_no_state_twice() -> None:
    flat = Candidates(np.full((4, 1), 5), np.zeros((4, 1)))
    problem = Problem((MASK,) * 4, flat, BlockEnd(MASK, 0, 9, ()), seed=1)
    calls: list[list[State]] = []

    def score(asks: list[Ask]) -> list[list[Scores]]:
        calls.append([state for _, states in asks for state in states])
        return scorer([problem])(asks)

    tree = problem.tree(budget=14)
    grow_trees([tree], score)
    assert len(tree.drafts()) == 14, "all unfinished states of four positions"
    assert [{fills(s, problem.root) for s in states} for states in calls] == [{0}, {1}, {2}, {3}]
    asked = [state for states in calls for state in states]
    assert len(asked) == len(set(asked))


def test_without_budget_nothing_is_asked() -> None:
    problem = Problem(
        (MASK, MASK), Candidates(np.full((2, 1), 5), np.zeros((2, 1))), BlockEnd(MASK, 0, 9, ()), 0
    )
    tree = problem.tree(budget=0)
    grow_trees([tree], lambda asks: pytest.fail("asked for scores"))
    assert tree.drafts() == []


def test_candidates_that_end_the_text_do_not_use_up_the_budget() -> None:
    """Both candidates of position 0 end the text; the next best child must still be drafted."""
    tokens = np.array([[5, 6], [5, 6]])
    log_probs = np.log(np.array([[0.5, 0.4], [0.3, 1e-9]]))
    problem = Problem((MASK, MASK), Candidates(tokens, log_probs), BlockEnd(MASK, 0, 1, ()), 0)
    tree = problem.tree(budget=1)
    grow_trees([tree], lambda asks: [[np.log([0.6, 0.4]) for _ in s] for _, s in asks])
    assert [draft.state for draft in tree.drafts()] == [(MASK, 5)]


def test_equal_states_are_folded_and_their_masses_added() -> None:
    sure = Candidates(np.full((3, 1), 5), np.zeros((3, 1)))
    tree = DraftTree((MASK,) * 3, sure, 6, 0.0, lambda state: MASK not in state)

    def uniform(asks: list[Ask]) -> list[list[Scores]]:
        return [
            [np.where(np.array(s) == MASK, -math.log(s.count(MASK)), -np.inf) for s in states]
            for _, states in asks
        ]

    grow_trees([tree], uniform)
    masses = {draft.state: draft.mass for draft in tree.drafts()}
    assert len(masses) == 6
    assert masses[(5, MASK, MASK)] == pytest.approx(1 / 3)
    assert masses[(5, 5, MASK)] == pytest.approx(1 / 3), "two orders of 1/6 each"
