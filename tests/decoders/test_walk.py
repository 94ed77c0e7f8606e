"""The walk accepts exactly the drafts that the target reaches."""

from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from decoders.rules import Step
from decoders.state import State, fill
from decoders.walk import Walk, walk

MASK = 9
LENGTH = 5
ROOT: State = (MASK,) * LENGTH
ORDER = (2, 0, 4, 1, 3)
PATH: list[State] = [ROOT]
for _position in ORDER:
    PATH.append(fill(PATH[-1], ((_position, _position),)))


def true_step(state: State) -> Step:
    """The target of these tests fills position p with token p, in a fixed order."""
    position = next(p for p in ORDER if state[p] == MASK)
    return ((position, position),)


def full(state: State) -> bool:
    return MASK not in state


def follow(drafts: list[State]) -> Walk:
    states = [ROOT, *drafts]
    copy_of: Mapping[State, int] = {state: index for index, state in enumerate(states)}
    return walk(ROOT, copy_of, lambda copy: true_step(states[copy]), full)


def test_without_drafts_one_step_is_committed() -> None:
    assert follow([]) == Walk((((2, 2),),), PATH[1], 0)


def test_n_accepted_drafts_give_n_plus_one_steps() -> None:
    for accepted in range(LENGTH):
        found = follow(PATH[1 : accepted + 1])
        assert len(found.steps) == accepted + 1
        assert len(found.steps) == accepted + 1
        assert found.state == PATH[accepted + 1]
        assert found.last == accepted


def test_drafts_may_stand_in_any_order_and_beside_wrong_ones() -> None:
    wrong: State = (7, MASK, 2, MASK, MASK)
    found = follow([PATH[3], wrong, PATH[1], PATH[2]])
    assert len(found.steps) == 4
    assert found.last == 1
    assert found.state == PATH[4]


def test_a_gap_in_the_drafts_ends_the_walk() -> None:
    found = follow([PATH[1], PATH[3]])
    assert len(found.steps) == 2
    assert found.state == PATH[2]


def test_a_draft_with_another_token_or_one_fill_too_many_is_not_the_state() -> None:
    other_token = fill(ROOT, ((2, 5),))
    too_many = fill(PATH[1], ((3, 3),))
    assert follow([other_token, too_many]).steps == follow([]).steps


def test_the_walk_ends_at_a_finished_state_even_when_it_was_drafted() -> None:
    states = [ROOT, PATH[1], PATH[2]]
    copy_of = {state: index for index, state in enumerate(states)}
    found = walk(ROOT, copy_of, lambda copy: true_step(states[copy]), lambda s: s == PATH[2])
    assert found.state == PATH[2]
    assert len(found.steps) == 2


def test_steps_of_several_commits_are_followed_like_single_ones() -> None:
    first: Step = ((0, 0), (3, 3))
    second: Step = ((1, 1), (2, 2))
    drafted = fill(ROOT, first)
    steps = [first, second]
    found = walk(ROOT, {ROOT: 0, drafted: 1}, lambda copy: steps[copy], full)
    assert found == Walk((first, second), fill(drafted, second), 1)


partial_states = st.tuples(*(st.sampled_from([MASK, p, 7]) for p in range(LENGTH)))


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.sets(partial_states, max_size=12), st.sets(st.integers(1, LENGTH - 1)))
def test_output_never_depends_on_the_drafts(noise: set[State], on_path: set[int]) -> None:
    drafts = sorted((noise | {PATH[i] for i in on_path}) - {ROOT})
    found = follow([draft for draft in drafts if not full(draft)])
    assert found.state == PATH[len(found.steps)]
    reached = 0
    while PATH[reached + 1] in drafts and not full(PATH[reached + 1]):
        reached += 1
    assert len(found.steps) == reached + 1
