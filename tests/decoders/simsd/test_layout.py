"""The layout, the temporal mask and the rotary copy, against their element-wise twin."""

from collections.abc import Iterator
from itertools import combinations, permutations

import pytest

from decoders.simsd.layout import lay_out, read_rows, rotary_offsets, temporal_mask
from decoders.state import State
from tests.reference.simsd import sees

MASK = 3


def blocks(length: int) -> Iterator[tuple[State, dict[int, int]]]:
    """Every known set of a block, and every draft of its open positions: all lengths and orders."""
    for size in range(length):
        for known in combinations(range(length), size):
            state = tuple(10 + i if i in known else MASK for i in range(length))
            rest = [i for i in range(length) if i not in known]
            for count in range(len(rest) + 1):
                for order in permutations(rest, count):
                    yield state, {position: 20 + position for position in order}


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_the_mask_equals_the_table_for_every_known_set_and_every_order(length: int) -> None:
    for state, draft in blocks(length):
        rows = lay_out(state, draft, MASK)
        expected = [[sees(row, column) for column in rows] for row in rows]
        assert temporal_mask(rows).tolist() == expected, (state, draft)


@pytest.mark.parametrize("length", [1, 3, 4])
def test_the_layout_is_known_then_data_then_slots_at_the_same_positions(length: int) -> None:
    for state, draft in blocks(length):
        rows = lay_out(state, draft, MASK)
        parts = {s: [r for r in rows if r.section == s] for s in ("known", "data", "slot")}
        assert list(rows) == parts["known"] + parts["data"] + parts["slot"]
        assert {r.position: r.token for r in parts["known"]} == {
            i: token for i, token in enumerate(state) if token != MASK
        }
        assert [r.position for r in parts["data"]] == [r.position for r in parts["slot"]]
        assert [r.step for r in parts["data"]] == [r.step for r in parts["slot"]]
        assert all(r.token == MASK for r in parts["slot"])
        assert {r.position: r.token for r in parts["data"] if r.token != MASK} == draft
        drafted = sorted((r.step, r.position) for r in parts["data"] if r.position in draft)
        assert [position for _, position in drafted] == list(draft), "tau is the drafter's order"


def test_slots_copy_rotary_positions_and_the_ablation_continues_behind_the_block() -> None:
    rows = lay_out((11, MASK, MASK, 12), {2: 20, 1: 21}, MASK)
    assert rotary_offsets(rows) == [0, 3, 1, 2, 1, 2]
    assert rotary_offsets(rows, copied=False) == [0, 3, 1, 2, 5, 6]


def test_rows_that_no_slot_sees_are_seen_by_none_that_a_slot_sees() -> None:
    """So leaving them out changes no slot's logits, whatever the number of layers."""
    for state, draft in blocks(4):
        rows = lay_out(state, draft, MASK)
        mask = temporal_mask(rows)
        kept = read_rows(rows, mask)
        dropped = [index for index in range(len(rows)) if index not in kept]
        assert not mask[kept][:, dropped].any()
        slots = [index for index, row in enumerate(rows) if row.section == "slot"]
        assert set(slots) <= set(kept)
        assert len(kept) <= len(state) + len(draft), "the block and the drafted tokens at most"


def test_only_open_positions_can_be_drafted() -> None:
    with pytest.raises(AssertionError, match="open positions"):
        lay_out((11, MASK), {0: 20}, MASK)
