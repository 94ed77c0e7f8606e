"""The breadth-first tree: every node's children are its most confident masks, level by level."""

from itertools import combinations

import pytest

from decoders.proposers.base import View
from decoders.proposers.wtree import wide_tree
from decoders.state import BlockEnd, State
from tests.decoders.test_chain import MASK, stale_of, view_of

POSITIONS = [0, 1, 2, 3, 4]
STALE = stale_of(POSITIONS, [5, 6, 7, 8, 9], [0.5, 0.9, 0.99, 0.95, 0.8])
ROOT: State = (MASK, MASK, 7, MASK, MASK)
"""Position 2, the most confident one, was committed; 3, 1, 4, 0 follow."""


def view(budget: int, width: int, end: BlockEnd | None = None, cap: float = 1.0) -> View:
    return view_of(ROOT, STALE, end, method="wtree", budget=budget, width=width, cap=cap)


def filled(state: State) -> tuple[int, ...]:
    return tuple(p for p in POSITIONS if state[p] != ROOT[p])


def test_levels_hold_sets_of_fills_without_repeats() -> None:
    found = [filled(draft.state) for draft in wide_tree(view(budget=32, width=2))]
    assert found[:2] == [(3,), (1,)]
    assert found[2:4] == [(1, 3), (3, 4)]
    assert len(set(found)) == len(found)
    assert [len(f) for f in found] == sorted(len(f) for f in found)


def test_a_tree_as_wide_as_the_block_holds_every_unfinished_set() -> None:
    found = {filled(draft.state) for draft in wide_tree(view(budget=256, width=4))}
    assert found == {c for n in (1, 2, 3) for c in combinations((0, 1, 3, 4), n)}


@pytest.mark.parametrize("budget", [1, 2, 5])
def test_a_budget_takes_the_first_nodes(budget: int) -> None:
    every = wide_tree(view(budget=256, width=3))
    assert wide_tree(view(budget=budget, width=3)) == every[:budget]


def test_the_mass_is_the_product_of_the_stale_probabilities() -> None:
    masses = {filled(draft.state): draft.mass for draft in wide_tree(view(budget=8, width=2))}
    assert masses[(3,)] == pytest.approx(0.95)
    assert masses[(1, 3)] == pytest.approx(0.95 * 0.9)


def test_width_one_is_a_chain_in_the_capped_order() -> None:
    found = [filled(draft.state) for draft in wide_tree(view(budget=8, width=1, cap=0.85))]
    assert found == [(1,), (1, 3), (1, 3, 4)]


def test_finished_states_are_neither_drafted_nor_grown_from() -> None:
    limited = BlockEnd(MASK, 0, 2, (1,))
    found = {filled(draft.state) for draft in wide_tree(view(256, 4, limited))}
    assert not [f for f in found if {0, 1} <= set(f)]
    assert (1, 3, 4) in found
