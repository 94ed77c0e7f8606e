"""States are sets of fills; a text ends at its limit or its first stop id, prompt excluded."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoders.state import BlockEnd, State, fill, masked_positions
from tests.reference.decoding import text_end

MASK, STOP = 9, 1


def end(prompt_end: int = 0, limit: int = 100, stop_ids: tuple[int, ...] = (STOP,)) -> BlockEnd:
    return BlockEnd(MASK, prompt_end, limit, stop_ids)


def test_masked_positions_ascend() -> None:
    assert masked_positions((9, 4, 9, 0), MASK) == (0, 2)
    assert masked_positions((1, 2), MASK) == ()


def test_equal_fills_are_equal_states_whatever_the_order() -> None:
    commits = [(0, 4), (2, 5), (3, 6)]
    found = set()
    for order in itertools.permutations(commits):
        state: State = (9, 9, 9, 9)
        for commit in order:
            state = fill(state, (commit,))
        found.add(state)
    assert found == {fill((9, 9, 9, 9), tuple(commits))} == {(4, 9, 5, 6)}


@pytest.mark.parametrize(
    ("state", "block_end", "ended", "finished"),
    [
        ((4, 9, 9, 9), end(), False, False),
        ((4, 5, 6, 7), end(), False, True),  # full, more to come in the next block
        ((4, 5, 6, 7), end(limit=4), True, True),  # the limit is the block's end
        ((4, 5, 9, 9), end(limit=2), True, True),  # nothing masked before the limit
        ((4, 9, 9, 9), end(limit=2), False, False),
        ((9, 5, 6, 7), end(limit=0), True, True),
        ((4, 1, 9, 9), end(), True, True),  # nothing masked before the stop id
        ((9, 1, 9, 9), end(), False, False),  # something is
        ((4, 9, 1, 7), end(), False, False),
        ((1, 9, 9, 9), end(prompt_end=1), False, False),  # a stop id of the prompt
        ((1, 1, 9, 9), end(prompt_end=1), True, True),  # the next one is generated
        ((1, 4, 9, 9), end(prompt_end=0), True, True),
        ((1, 9, 9, 9), end(prompt_end=-8), True, True),  # a later block
        ((4, 1, 9, 9), end(stop_ids=()), False, False),  # ignore_stop
        ((4, 9, 1, 9), end(limit=1), True, True),
        ((4, 5, 1, 9), end(limit=2), True, True),  # limit and stop id agree
    ],
)
def test_text_and_block_ends(
    state: State, block_end: BlockEnd, ended: bool, finished: bool
) -> None:
    assert block_end.text_ended(state) is ended
    assert block_end.finished(state) is finished


@settings(derandomize=True, deadline=None, max_examples=300)
@given(
    st.lists(st.sampled_from([MASK, STOP, 4, 5]), min_size=1, max_size=6),
    st.integers(0, 3),
    st.integers(1, 8),
)
def test_text_end_equals_a_plain_search(tokens: list[int], prompt_end: int, room: int) -> None:
    prompt_end = min(prompt_end, len(tokens))
    tokens[:prompt_end] = [STOP] * prompt_end
    limit = prompt_end + room
    expected = text_end(tokens, prompt_end, limit, MASK, {STOP}) >= 0
    assert end(prompt_end, limit).text_ended(tuple(tokens)) is expected


@settings(derandomize=True, deadline=None)
@given(st.lists(st.sampled_from([MASK, STOP, 4]), min_size=4, max_size=4), st.integers(0, 5))
def test_what_ended_stays_ended_under_more_fills(tokens: list[int], limit: int) -> None:
    block_end, state = end(limit=limit), tuple(tokens)
    if block_end.text_ended(state):
        for position in masked_positions(state, MASK):
            assert block_end.text_ended(fill(state, ((position, 5),)))
