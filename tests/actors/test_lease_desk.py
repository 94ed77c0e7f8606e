"""Leases: one holder a group, in the order of asking, and no waiting for what never comes."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from actors.lease_desk import LeaseDesk, NoGroupLeft


async def desk_of(*names: str) -> LeaseDesk:
    desk = LeaseDesk()
    await desk.expect(len(names))
    for name in names:
        await desk.add(name)
    return desk


def waits(work: Coroutine[Any, Any, Any]) -> asyncio.Future[Any]:
    return asyncio.ensure_future(work)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_groups_go_to_one_holder_each_first_come_first_served() -> None:
    async def play() -> None:
        desk = await desk_of("a")
        assert await desk.take("one") == "a"
        assert await desk.take("one") == "a", "who asks again has it already"
        two, three = waits(desk.take("two")), waits(desk.take("three"))
        await settle()
        assert not two.done()
        await desk.give_back("one")
        await desk.give_back("one")
        assert await two == "a"
        assert not three.done()
        await desk.give_back("two")
        assert await three == "a"

    asyncio.run(play())


def test_a_group_that_comes_later_is_waited_for() -> None:
    async def play() -> None:
        desk = await desk_of()
        await desk.expect(1)
        taking = waits(desk.take("one"))
        await settle()
        assert not taking.done()
        await desk.add("late")
        assert await taking == "late"

    asyncio.run(play())


def test_nobody_waits_for_groups_that_do_not_come() -> None:
    async def play() -> None:
        desk = await desk_of()
        await desk.expect(1)
        taking = waits(desk.take("one"))
        await desk.give_up("no node had room")
        with pytest.raises(NoGroupLeft, match="no target group is left: no node had room"):
            await taking

    asyncio.run(play())


def test_a_lost_group_is_told_once_and_expected_again() -> None:
    async def play() -> None:
        desk = await desk_of("a", "b")
        assert (await desk.take("one"), await desk.take("two")) == ("a", "b")
        await desk.lose("one", "its node died")
        again = waits(desk.take("one"))
        assert await desk.next_lost() == ("a", "its node died")
        await settle()
        assert not again.done()
        await desk.give_up("no room")
        assert not again.done(), "the other group is still there"
        await desk.give_back("two")
        assert await again == "b"
        await desk.lose("one", "this one too")
        await desk.add("b")
        assert await desk.take("three") == "b"

    asyncio.run(play())


def test_only_free_groups_retire() -> None:
    async def play() -> None:
        desk = await desk_of("a", "b", "c")
        held = await desk.take("one")
        assert len(await desk.retire(2)) == 1
        assert await desk.retire(2) == []
        gone = await desk.retire(0)
        assert len(gone) == 1
        assert held not in gone

    asyncio.run(play())
