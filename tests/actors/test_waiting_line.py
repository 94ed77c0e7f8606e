"""First come first served, as far as memory goes; nobody waits for ever."""

from hypothesis import given
from hypothesis import strategies as st

from actors.waiting_line import MOST_PASSED, Place, next_to_join, to_park


def line(*needs: int) -> list[Place]:
    return [Place(number, need) for number, need in enumerate(needs)]


def test_the_first_joins_first_where_there_is_room() -> None:
    assert next_to_join(line(5, 3), room=9) == 0
    assert next_to_join([], room=9) is None


def test_one_that_finds_no_room_is_passed_by_one_that_does() -> None:
    places = line(9, 8, 3, 2)
    assert next_to_join(places, room=4) == 2
    assert [place.passed for place in places] == [1, 1, 0, 0]
    assert next_to_join(places, room=1) is None


def test_it_is_not_passed_for_ever() -> None:
    places = line(9, 1)
    for _ in range(MOST_PASSED):
        assert next_to_join(places, room=4) == 1
    assert next_to_join(places, room=4) is None
    assert next_to_join(places, room=9) == 0


def test_nobody_passes_a_parked_request() -> None:
    parked, later = Place(0, 9).unpassable(), Place(1, 1)
    assert next_to_join([parked, later], room=4) is None
    assert next_to_join([parked, later], room=9) == 0


def test_the_youngest_are_parked_and_only_as_many_as_needed() -> None:
    assert to_park([4, 4, 4], tokens=12) == 0
    assert to_park([4, 4, 4], tokens=11) == 1
    assert to_park([4, 4, 4], tokens=4) == 2
    assert to_park([], tokens=4) == 0


@given(
    st.lists(st.tuples(st.integers(1, 10), st.integers(1, 6)), min_size=1, max_size=40),
    st.integers(10, 20),
)
def test_every_request_joins_and_few_pass_it(asked: list[tuple[int, int]], tokens: int) -> None:
    """Requests of (need, rounds) that arrive at once and stay as they are."""
    places, running = line(*(need for need, _ in asked)), dict[int, tuple[int, int]]()
    joined: list[int] = []
    for _ in range(1000):
        while True:
            room = tokens - sum(need for need, _ in running.values())
            index = next_to_join(places, room)
            if index is None:
                break
            place = places.pop(index)
            running[place.number] = asked[place.number]
            joined.append(place.number)
        running = {n: (need, left - 1) for n, (need, left) in running.items() if left > 1}
        if not places:
            break
    assert sorted(joined) == list(range(len(asked)))
    for at, number in enumerate(joined):
        assert sum(later > number for later in joined[:at]) <= MOST_PASSED
