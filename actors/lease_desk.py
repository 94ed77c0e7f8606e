"""Who may use which target group now: one holder a group, first come first served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import ray
from pydantic import BaseModel
from ray.actor import ActorHandle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from actors.remote_calls import fetch
from actors.target_group import GroupGone, TargetGroup
from actors.target_rank import GroupError
from tasks.whole import write_whole

PATIENCE = 5.0
"""Seconds in which a lost group must find another place, before its work begins again elsewhere."""

Found = TypeVar("Found")


class NoGroupLeft(GroupError):
    """There is no group any more, and none is coming."""


class Loss(NamedTuple):
    """A lost group and why; no group where it is the desk's own process that was lost."""

    group: str | None
    reason: str


class Ledger(BaseModel):
    """All that a desk knows of its groups."""

    free: list[str] = []
    held: dict[str, str] = {}
    """Holder to group."""
    coming: set[str] = set()
    losses: list[Loss] = []
    """In the order in which they were noticed."""
    retired: list[str] = []
    reason: str = "none was started"
    """Why the latest group that was given up does not come."""


class LeaseDesk:
    """Groups by name: free, held, or coming. Holders are named, so that whoever sees one end can
    give back what it held; asking again with the same name gives the same group.

    What is known stands in ``file`` before anybody is told. Ray starts a lost desk again, which
    goes on from there, and makes unanswered calls again: a second call changes nothing.
    """

    def __init__(self, file: Path) -> None:
        self._changed = asyncio.Condition()
        self._file = file
        self._ledger = Ledger()
        if file.exists():
            self._ledger = Ledger.model_validate_json(file.read_bytes())
            held = len(self._ledger.held)
            self._ledger.losses.append(
                Loss(None, f"the process that leases groups was lost; a new one knows its {held}")
            )
        self._write()

    async def expect(self, names: Sequence[str]) -> None:
        """These groups are being brought up: each is added or given up later."""
        async with self._changing() as ledger:
            ledger.coming.update(names)

    async def add(self, name: str) -> None:
        """An expected group is up."""
        async with self._changing() as ledger:
            ledger.coming.discard(name)
            if name not in (*ledger.free, *ledger.held.values()):
                ledger.free.append(name)

    async def give_up(self, name: str, reason: str) -> None:
        """An expected group does not come."""
        async with self._changing() as ledger:
            ledger.coming.discard(name)
            ledger.reason = reason

    async def take(self, holder: str) -> str:
        """The name of a group that nobody else uses, once there is one.

        Raises :class:`NoGroupLeft` when there is none and none comes.
        """
        ledger = self._ledger
        async with self._changed:
            # What a process asked for that ended while it waited may have come: it is the holder's.
            await self._changed.wait_for(
                lambda: holder in ledger.held or ledger.free or self._is_over()
            )
            if holder not in ledger.held:
                if not ledger.free:
                    raise NoGroupLeft(f"no target group is left: {ledger.reason}")
                ledger.held[holder] = ledger.free.pop(0)
                self._write()
            return ledger.held[holder]

    def _is_over(self) -> bool:
        return not (self._ledger.free or self._ledger.held or self._ledger.coming)

    async def give_back(self, holder: str) -> None:
        """The holder has ended; it may have held nothing."""
        async with self._changing() as ledger:
            name = ledger.held.pop(holder, None)
            if name is not None:
                ledger.free.append(name)

    async def lose(self, holder: str, reason: str) -> None:
        """What the holder held is gone; it is expected to come up again somewhere."""
        async with self._changing() as ledger:
            name = ledger.held.pop(holder, None)
            if name is not None:
                ledger.coming.add(name)
                ledger.losses.append(Loss(name, reason))

    async def next_loss(self, known: int) -> Loss:
        """The loss behind the first ``known`` ones, once there is one."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self._ledger.losses) > known)
            return self._ledger.losses[known]

    async def end(self) -> None:
        """Answer who waits for a loss: there is nothing to wait for any more."""
        async with self._changing() as ledger:
            ledger.losses.append(Loss(None, "no group is leased any more"))

    async def retire(self, keep: int) -> list[str]:
        """Withdraw free groups beyond ``keep`` in all, but never the last one that is up: what is
        expected may not come. Nobody gets them any more. Returns all that were withdrawn so far."""
        async with self._changing() as ledger:
            up = len(ledger.free) + len(ledger.held)
            beyond = up + len(ledger.coming) - keep
            for _ in range(min(beyond, len(ledger.free), up - 1)):
                ledger.retired.append(ledger.free.pop())
            return list(ledger.retired)

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[Ledger]:
        """The ledger, for a change that is written down, and told to whoever waits."""
        async with self._changed:
            yield self._ledger
            self._write()
            self._changed.notify_all()

    def _write(self) -> None:
        write_whole(self._file, self._ledger.model_dump_json())


RemoteLeaseDesk: Any = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(LeaseDesk)


@dataclass(frozen=True)
class Leases:
    """A desk as trials see it, in any process."""

    desk: ActorHandle

    @classmethod
    def open(cls, file: Path) -> Leases:
        """A new desk in a process near this one, which lives as long as this one does, and writes
        down in ``file`` what it knows."""
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        return cls(RemoteLeaseDesk.options(scheduling_strategy=here).remote(file))

    def take(self, holder: str) -> TargetGroup:
        """A group for ``holder`` alone; waits for one."""
        name = fetch(self.desk.take.remote(holder))
        try:
            return TargetGroup.attach(name, PATIENCE)
        except ValueError as error:
            raise GroupGone(str(error)) from error

    def give_back(self, holder: str) -> None:
        """Let go of what ``holder`` has, if anything."""
        fetch(self.desk.give_back.remote(holder))

    def use(self, holder: str, work: Callable[[TargetGroup], Found]) -> Found:
        """What ``work`` finds with a group of its own; when the group is lost for good, with the
        next one, from the beginning.

        Raises what ``work`` raises, and :class:`NoGroupLeft`.
        """
        try:
            while True:
                try:
                    return work(self.take(holder))
                except GroupGone as error:
                    fetch(self.desk.lose.remote(holder, str(error)))
        finally:
            self.give_back(holder)
