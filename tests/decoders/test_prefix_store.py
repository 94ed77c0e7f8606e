"""Kept blocks: found by their text alone, given up least recently used first, never from amid."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from decoders.prefix_store import PrefixStore
from tests.reference.prefixes import NaivePrefixes

L = 2
TEXTS = st.lists(st.integers(0, 1), max_size=4 * L)
WORK = st.lists(st.tuples(st.sampled_from(["find", "add", "shrink"]), TEXTS, st.integers(0, 9)))


def texts_of(store: PrefixStore, known: dict[int, tuple[int, ...]]) -> set[tuple[int, ...]]:
    return {known[number] for number in store._numbers.values()}


@given(WORK)
def test_the_store_keeps_what_its_definition_keeps(
    work: Sequence[tuple[str, list[int], int]],
) -> None:
    """The text behind every number is written down when the number is given out."""
    store, naive, known = PrefixStore(L), NaivePrefixes(L), dict[int, tuple[int, ...]]()
    for what, text, most in work:
        if what == "find":
            found = [known[number] for number in store.find(text)]
            assert found == [tuple(text[: end * L]) for end in range(1, naive.find(text) + 1)]
        elif what == "add":
            before = len(store)
            added = store.add(text, most := max(most, before))
            naive.add(text, most)
            for index, number in enumerate(added.numbers, start=added.first + 1):
                assert number not in known, "numbers are never used again"
                known[number] = tuple(text[: index * L])
            assert len(store) == before + len(added.numbers) - len(added.gone) <= most
        else:
            store.shrink(most)
            naive.shrink(most)
        assert texts_of(store, known) == set(naive.used)
        assert all(text[:-L] in naive.used or len(text) == L for text in naive.used)


def test_an_unfinished_block_is_never_kept() -> None:
    store = PrefixStore(4)
    assert store.add((5, 6, 7), most=9).numbers == []
    assert len(store.add((5, 6, 7, 8, 9), most=9).numbers) == 1


def test_equal_blocks_behind_different_texts_are_different() -> None:
    store = PrefixStore(2)
    store.add((1, 1, 5, 5), most=9)
    assert len(store.find((2, 2, 5, 5))) == 0
    assert len(store.find((1, 1, 5, 5))) == 2
    assert len(store.find((1, 1, 6, 6))) == 1
