"""Leases: one holder a group, in the order of asking, and no waiting for what never comes."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from actors.lease_desk import LeaseDesk, NoGroupLeft


async def desk_of(folder: Path, *names: str) -> LeaseDesk:
    desk = LeaseDesk(folder / "leases.json")
    await desk.expect(names)
    for name in names:
        await desk.add(name)
    return desk


def waits(work: Coroutine[Any, Any, Any]) -> asyncio.Future[Any]:
    return asyncio.ensure_future(work)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_groups_go_to_one_holder_each_first_come_first_served(tmp_path: Path) -> None:
    async def play() -> None:
        desk = await desk_of(tmp_path, "a")
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


def test_a_group_that_comes_later_is_waited_for(tmp_path: Path) -> None:
    async def play() -> None:
        desk = await desk_of(tmp_path)
        await desk.expect(["late"])
        taking = waits(desk.take("one"))
        await settle()
        assert not taking.done()
        await desk.add("late")
        assert await taking == "late"

    asyncio.run(play())


def test_nobody_waits_for_groups_that_do_not_come(tmp_path: Path) -> None:
    async def play() -> None:
        desk = await desk_of(tmp_path)
        await desk.expect(["never"])
        taking = waits(desk.take("one"))
        await desk.give_up("never", "no node had room")
        with pytest.raises(NoGroupLeft, match="no target group is left: no node had room"):
            await taking

    asyncio.run(play())


def test_a_lost_group_is_told_once_and_expected_again(tmp_path: Path) -> None:
    async def play() -> None:
        desk = await desk_of(tmp_path, "a", "b")
        assert (await desk.take("one"), await desk.take("two")) == ("a", "b")
        await desk.lose("one", "its node died")
        again = waits(desk.take("one"))
        assert await desk.next_loss(0) == ("a", "its node died")
        await settle()
        assert not again.done()
        await desk.give_up("a", "no room")
        assert not again.done(), "the other group is still there"
        await desk.give_back("two")
        assert await again == "b"
        await desk.lose("one", "this one too")
        await desk.add("b")
        assert await desk.take("three") == "b"

    asyncio.run(play())


def test_only_free_groups_retire(tmp_path: Path) -> None:
    async def play() -> None:
        desk = await desk_of(tmp_path, "a", "b", "c")
        held = await desk.take("one")
        assert len(await desk.retire(2)) == 1
        assert len(await desk.retire(2)) == 1, "no more than asked for"
        gone = await desk.retire(0)
        assert len(gone) == 2
        assert held not in gone

    asyncio.run(play())


def test_who_asks_again_while_waiting_gets_one_group_and_none_is_forgotten(tmp_path: Path) -> None:
    async def play() -> None:
        desk = await desk_of(tmp_path, "a")
        await desk.expect(["b"])
        await desk.take("one")
        ended = waits(desk.take("two"))  # by a process that is lost, and started once more
        again = waits(desk.take("two"))
        await settle()
        await desk.add("b")
        await settle()
        assert again.done(), "the second process works with what the first one asked for"
        assert await ended == await again == "b"
        await desk.give_back("one")
        await desk.give_back("two")
        assert {await desk.take(holder) for holder in ("three", "four")} == {"a", "b"}

    asyncio.run(play())


def test_the_last_group_that_is_up_stays_while_others_are_only_expected(tmp_path: Path) -> None:
    async def play() -> None:
        desk = await desk_of(tmp_path, "a")
        await desk.expect(["waits for a place"])
        assert await desk.retire(1) == []
        await desk.give_up("waits for a place", "no node had room")
        assert await desk.take("one") == "a"

    asyncio.run(play())


def test_a_desk_that_begins_again_knows_its_leases_and_takes_no_call_twice(tmp_path: Path) -> None:
    async def play() -> None:
        first = await desk_of(tmp_path, "a", "b", "c", "d")
        await first.take("one")
        await first.take("two")
        await first.lose("two", "its node died")
        assert await first.retire(3) == ["d"]
        desk = LeaseDesk(tmp_path / "leases.json")
        assert await desk.take("one") == "a"
        assert await desk.next_loss(0) == ("b", "its node died")
        group, reason = await desk.next_loss(1)
        assert (group, "was lost" in reason) == (None, True)
        # Ray makes calls again whose answers were lost.
        await desk.lose("two", "its node died")
        await desk.add("c")
        assert await desk.retire(3) == ["d"]
        assert await desk.take("three") == "c"
        four = waits(desk.take("four"))
        later = waits(desk.next_loss(2))
        await settle()
        assert not four.done()
        assert not later.done()
        await desk.add("b")
        assert await four == "b"
        later.cancel()

    asyncio.run(play())
