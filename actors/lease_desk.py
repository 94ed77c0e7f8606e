"""Who may use which target group now: one holder a group, first come first served."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import ray
from ray.actor import ActorHandle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from actors.remote_calls import fetch
from actors.target_group import GroupGone, TargetGroup
from actors.target_rank import GroupError

PATIENCE = 5.0
"""Seconds in which a lost group must find another place, before its work begins again elsewhere."""

Found = TypeVar("Found")


class NoGroupLeft(GroupError):
    """There is no group any more, and none is coming."""


class LeaseDesk:
    """Groups by name: free, held, or lost. Holders are named, so that whoever sees one end can give
    back what it held; asking again with the same name gives the same group."""

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._free: list[str] = []
        self._held: dict[str, str] = {}
        self._lost: list[tuple[str, str]] = []
        self._coming = 0
        self._reason = "none was started"

    async def expect(self, count: int) -> None:
        """``count`` more groups are being brought up: each is added or given up later."""
        async with self._changed:
            self._coming += count

    async def add(self, name: str) -> None:
        """An expected group is up."""
        async with self._changed:
            self._coming -= 1
            self._free.append(name)
            self._changed.notify_all()

    async def give_up(self, reason: str) -> None:
        """An expected group does not come."""
        async with self._changed:
            self._coming -= 1
            self._reason = reason
            self._changed.notify_all()

    async def take(self, holder: str) -> str:
        """The name of a group that nobody else uses, once there is one.

        Raises :class:`NoGroupLeft` when there is none and none comes.
        """
        async with self._changed:
            if holder not in self._held:
                await self._changed.wait_for(lambda: self._free or self._is_over())
                if not self._free:
                    raise NoGroupLeft(f"no target group is left: {self._reason}")
                self._held[holder] = self._free.pop(0)
            return self._held[holder]

    def _is_over(self) -> bool:
        return not (self._free or self._held or self._coming)

    async def give_back(self, holder: str) -> None:
        """The holder has ended; it may have held nothing."""
        async with self._changed:
            name = self._held.pop(holder, None)
            if name is not None:
                self._free.append(name)
                self._changed.notify_all()

    async def lose(self, holder: str, reason: str) -> None:
        """What the holder held is gone; it is expected to come up again somewhere."""
        async with self._changed:
            name = self._held.pop(holder, None)
            if name is not None:
                self._coming += 1
                self._lost.append((name, reason))
                self._changed.notify_all()

    async def next_lost(self) -> tuple[str, str]:
        """A lost group and why, once there is one; each is told once."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._lost)
            return self._lost.pop(0)

    async def retire(self, keep: int) -> list[str]:
        """Free groups beyond ``keep`` in all; nobody gets them any more."""
        async with self._changed:
            beyond = len(self._free) + len(self._held) + self._coming - keep
            retired = [self._free.pop() for _ in range(min(max(0, beyond), len(self._free)))]
            return retired


RemoteLeaseDesk: Any = ray.remote(num_cpus=0)(LeaseDesk)


@dataclass(frozen=True)
class Leases:
    """A desk as trials see it, in any process."""

    desk: ActorHandle

    @classmethod
    def open(cls) -> Leases:
        """A new desk in a process near this one, which lives as long as this one does."""
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        return cls(RemoteLeaseDesk.options(scheduling_strategy=here).remote())

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
