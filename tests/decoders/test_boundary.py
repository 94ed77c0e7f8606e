"""The block boundary's algebra: which copies ride, in which order, and what is cut."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoders.boundary import (
    Opening,
    across,
    cut,
    first_state,
    likeliest_fill,
    merge_behind,
    nearest,
)
from decoders.copies import arrange, copy_batch
from decoders.options import DecodeOptions
from decoders.proposers.base import Draft
from decoders.rules import Step
from decoders.stale import Stale
from decoders.state import State
from models.target import NO_PARENT

MASK = 3
BLANK = (MASK, MASK)
ROOT, PART, FULL, OTHER = (9, MASK, MASK), (9, 5, MASK), (9, 5, 6), (9, 7, 8)
EXACT = settings(derandomize=True, deadline=None, max_examples=60)


def stale_of(positions: list[int], candidates: list[list[int]]) -> Stale:
    rows = np.zeros((len(positions), 1), dtype=np.float32)
    ones = np.zeros(len(positions), dtype=np.float32)
    ids = np.array(candidates)
    return Stale(np.array(positions), rows, ids, ones, ones, ids, rows, ones)


def opening(step: Step) -> Opening:
    return Opening(step, lambda: stale_of([0], [[5]]))


def test_the_likeliest_fill_takes_the_first_candidate_where_the_root_is_masked() -> None:
    stale = stale_of([0, 1, 2], [[4, 5], [6, 7], [8, 9]])
    assert likeliest_fill((MASK, 5, MASK), stale, MASK) == (4, 5, 8)


def test_the_nearest_opening_agrees_at_most_positions_and_an_equal_one_first() -> None:
    openings = {(1, 2, 3): opening(()), (1, 2, 4): opening(()), (7, 8, 9): opening(())}
    assert nearest(openings, (7, 8, 9)) is openings[7, 8, 9]
    assert nearest(openings, (1, 2, 9)) is openings[1, 2, 3], "of equals the first"
    assert nearest(openings, (0, 2, 4)) is openings[1, 2, 4]


def test_behind_a_known_opening_the_next_block_begins_a_step_later() -> None:
    openings = {FULL: opening(((1, 5),))}
    assert first_state(BLANK, FULL, openings) == (MASK, 5)
    assert first_state(BLANK, OTHER, openings) == BLANK


def test_behind_every_full_draft_rides_the_next_blocks_first_state() -> None:
    drafts = [Draft(PART, 0.9, 0.8), Draft(FULL, 0.5, 0.4), Draft(OTHER, 0.2, 0.1)]
    found = across(drafts, {FULL: BLANK, OTHER: None}.get, MASK)
    assert found == [drafts[0], drafts[1], Draft(BLANK, 0.5, 0.4, behind=FULL)]


def test_the_next_blocks_drafts_follow_their_first_state_the_heavier_head_first() -> None:
    drafts = [
        Draft(PART, 0.9),
        *(Draft(FULL, 0.5), Draft(BLANK, 0.5, 0.5, FULL)),
        *(Draft(OTHER, 0.2), Draft(BLANK, 0.2, 0.2, OTHER)),
    ]
    ahead = [Draft((5, MASK), 0.8), Draft((MASK, 6), 0.3)]
    merged = merge_behind(drafts, FULL, ahead)
    assert [(d.behind, d.state) for d in merged] == [
        *((d.behind, d.state) for d in drafts[:3]),
        (FULL, (5, MASK)),
        *((d.behind, d.state) for d in drafts[3:]),
        (FULL, (MASK, 6)),
    ]
    assert [d.mass for d in merged] == pytest.approx([0.9, 0.5, 0.5, 0.4, 0.2, 0.2, 0.15])
    assert merge_behind(drafts[:1], FULL, ahead) == drafts[:1], "it is not drafted"


masses = st.lists(st.floats(0, 1), max_size=5)


@EXACT
@given(masses, st.floats(0, 1), masses, masses, st.integers(0, 14))
def test_lists_are_nested_ordered_and_pairs_are_whole(
    before: list[float], mass: float, after: list[float], ahead: list[float], budget: int
) -> None:
    """A smaller budget's drafts are the first ones of a larger budget's."""
    drafts = [
        *(Draft((9, 10 + n, MASK), m) for n, m in enumerate(before)),
        *(Draft(FULL, mass), Draft(BLANK, mass, behind=FULL)),
        *(Draft((9, 20 + n, MASK), m) for n, m in enumerate(after)),
    ]
    behind = [Draft((30 + n, MASK), m) for n, m in enumerate(ahead)]
    merged = merge_behind(drafts, FULL, behind)
    assert [d for d in merged if d in drafts] == drafts
    assert [d.state for d in merged if d.behind][1:] == [d.state for d in behind]
    kept = cut(merged, budget, MASK)
    assert len(kept) <= budget
    assert kept == merged[: len(kept)]
    assert len(merged) - len(kept) <= max(0, len(merged) - budget) + 1
    assert (FULL in [d.state for d in kept]) == any(d.behind == FULL for d in kept)


def test_copies_lie_in_one_order_and_know_their_parents() -> None:
    places = [(None, FULL), (FULL, BLANK), (None, PART), (None, OTHER), (OTHER, (5, MASK))]
    part = arrange(places, ROOT, None, opens=False, mask_id=MASK)
    assert part.states == [ROOT, PART, FULL, OTHER, BLANK, (5, MASK)]
    assert part.parents == [NO_PARENT] * 4 + [2, 3]
    assert part.stores == [False] * 6
    assert (part.kind, part.num_drafts) == ("verify", 5)


def test_behind_a_block_to_be_stored_drafts_have_it_as_parent_and_nothing_crosses() -> None:
    stored: State = (9, 9, 9)
    part = arrange([(None, PART)], ROOT, stored, opens=True, mask_id=MASK)
    assert part.states == [stored, ROOT, PART]
    assert part.parents == [NO_PARENT, 0, 0]
    assert part.stores == [True, False, False]
    assert part.kind == "verify", "it carries drafts"
    plain = arrange([], ROOT, stored, opens=True, mask_id=MASK)
    assert (plain.kind, plain.num_drafts) == ("open", 0)
    crossing = arrange([(None, FULL), (FULL, ROOT)], ROOT, stored, opens=True, mask_id=MASK)
    with pytest.raises(AssertionError, match="a parent has no parent"):
        _ = crossing.parents


def test_a_batch_shifts_parents_and_asks_for_masked_rows_only() -> None:
    one = arrange([(None, FULL), (FULL, (MASK, 5, MASK))], ROOT, None, False, MASK)
    two = arrange([], PART, (1, 1, 1), True, MASK)
    batch, rows = copy_batch([4, 7], [one, two], MASK)
    assert list(batch.slots) == [4, 4, 4, 7, 7]
    assert list(batch.parents) == [NO_PARENT, NO_PARENT, 1, NO_PARENT, 3]
    assert list(batch.stores) == [False, False, False, True, False]
    assert batch.rows.tolist() == [1, 2, 6, 8, 14]
    assert rows == [4, 1]


@pytest.mark.parametrize("option", [{"cross_block": True}, {"draft_refresh": 4}])
@pytest.mark.parametrize("method", ["standard", "threshold"])
def test_methods_without_drafts_do_not_know_them(method: str, option: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=rf"decode\.{next(iter(option))} is not an option of"):
        DecodeOptions.model_validate({"method": method} | option)
