"""Rules of acceptance against their definitions, and max-commit against trying every path."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoders.acceptance import Rows, acceptable, max_commit, step_between
from decoders.options import Acceptance
from decoders.rules import threshold_step
from decoders.state import State
from decoders.walk import walk
from tests.reference.acceptance import all_paths, is_acceptable

MASK, L = 9, 4
RULES: tuple[Acceptance, ...] = ("exact", "cut", "subset", "product")
TAUS = st.sampled_from([0.0, 0.5, 0.7, 0.9])
# Ties and both sides of every tau; some pairs whose geometric mean is on either side of it.
LOG_ODDS = st.sampled_from([-2.0, -0.5, 0.0, 0.5, 1.5, 2.0, 3.0, 6.0])


def rows_of(table: dict[int, tuple[int, float]]) -> Rows:
    positions = sorted(table)
    return Rows(
        np.array(positions),
        np.array([table[p][0] for p in positions]),
        np.array([table[p][1] for p in positions]),
    )


TABLES = st.dictionaries(
    st.integers(0, 5), st.tuples(st.integers(0, 2), LOG_ODDS), min_size=1, max_size=5
)


@given(TABLES, TAUS, st.data())
def test_every_rule_accepts_what_its_definition_does(
    table: dict[int, tuple[int, float]], tau: float, data: st.DataObject
) -> None:
    chosen = data.draw(st.lists(st.sampled_from(sorted(table)), min_size=1, unique=True))
    wrong = data.draw(st.booleans()) and data.draw(st.booleans())
    step = tuple((p, table[p][0] + wrong * (p == min(chosen))) for p in sorted(chosen))
    rows = rows_of(table)
    own = threshold_step(rows.positions, rows.tokens, rows.log_odds, tau)
    for rule in RULES:
        expected = is_acceptable(step, table, tau, rule)
        assert acceptable(step, own, rows, tau, rule) == expected, rule


@given(TABLES, TAUS)
def test_each_rule_accepts_all_that_a_stricter_one_does(
    table: dict[int, tuple[int, float]], tau: float
) -> None:
    rows = rows_of(table)
    own = threshold_step(rows.positions, rows.tokens, rows.log_odds, tau)
    for size in range(1, len(own) + 1):
        taken = {rule: acceptable(own[:size], own, rows, tau, rule) for rule in RULES}
        assert taken["exact"] <= taken["cut"] <= taken["subset"]
    assert all(acceptable(own, own, rows, tau, rule) for rule in RULES)


def random_case(seed: int) -> tuple[list[State], list[State], dict[State, dict], float]:
    """A root, drafts above it (some finished) and rows for all that are not."""
    draw = random.Random(seed)
    root = tuple(draw.choice([MASK, MASK, MASK, 1]) for _ in range(L))
    root = (MASK, *root[1:])
    states = set()
    for _ in range(draw.randint(0, 8)):
        fills = [draw.choice([MASK, 0, 0, 1]) if t == MASK else t for t in root]
        states.add(tuple(fills))
    states -= {root}
    copies = [root, *sorted(s for s in states if MASK in s)]
    ends = sorted(s for s in states if MASK not in s)
    rows = {
        state: {
            i: (draw.choice([0, 0, 0, 1]), draw.choice([-1.0, 0.5, 1.5, 2.5, 4.0]))
            for i, token in enumerate(state)
            if token == MASK
        }
        for state in copies
    }
    return copies, ends, rows, draw.choice([0.5, 0.7, 0.9])


@pytest.mark.parametrize("rule", RULES)
def test_max_commit_finds_what_trying_every_path_finds(rule: Acceptance) -> None:
    longer = 0
    for seed in range(400):
        copies, ends, rows, tau = random_case(seed)
        said = [rows_of(rows[copy]) for copy in copies]
        found = max_commit(copies, ends, said.__getitem__, tau, rule, MASK)
        paths = list(all_paths(copies[0], [*copies[1:], *ends], rows.get, tau, rule, MASK))
        most = max(sum(map(len, path)) for path in paths)
        assert sum(map(len, found.steps)) == most
        assert found.steps in paths
        filled = dict(enumerate(copies[0])) | {p: t for step in found.steps for p, t in step}
        assert found.state == tuple(filled[i] for i in range(L))
        longer += len(found.steps) > 1
    assert longer > 40, "drafts were gone through"


def test_with_the_exact_rule_max_commit_is_the_walk() -> None:
    for seed in range(400):
        copies, ends, rows, tau = random_case(seed)

        said = [rows_of(rows[copy]) for copy in copies]
        own = [threshold_step(r.positions, r.tokens, r.log_odds, tau) for r in said]
        copy_of = {state: index for index, state in enumerate(copies)}
        expected = walk(copies[0], copy_of, own.__getitem__, lambda state: MASK not in state)
        found = max_commit(copies, ends, said.__getitem__, tau, "exact", MASK)
        assert found.steps == expected.steps
        assert found.state == expected.state
        assert found.last == expected.last


def test_a_step_between_states_is_their_difference_or_nothing() -> None:
    assert step_between((MASK, 1, MASK, MASK), (5, 1, MASK, 6), MASK) == ((0, 5), (3, 6))
    assert step_between((MASK, 1), (MASK, 1), MASK) == ()
    assert step_between((MASK, 1), (3, 2), MASK) == ()
    assert step_between((3, 1), (MASK, 1), MASK) == ()
