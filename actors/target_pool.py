"""Equal target groups all over the cluster: as many as are wanted and have room.

A group's place is a placement group, and the queue of those is Ray's own: whoever shares the
cluster waits its turn there, and a program that ends, however it ends, leaves its places to others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import ray
from pydantic import BaseModel, ConfigDict, Field
from ray.exceptions import RayActorError
from ray.util.placement_group import placement_group_table

from actors.group_setup import Share, usual_share
from actors.lease_desk import Leases
from actors.placing import num_fitting
from actors.remote_calls import fetch
from actors.target_group import PREFIX, TargetGroup, Waiting
from actors.target_rank import GroupError
from drafters.config import DrafterConfig
from models.config import TargetConfig

TOLD_AFTER = 5.0
"""Seconds until the first message that a place is waited for."""

TOLD = (ValueError, GroupError, RayActorError)
"""Reasons that say themselves why a group does not come up."""

Tell = Callable[[str], None]


class PoolConfig(BaseModel):
    """How many copies of the target work at a time, and what each takes (``pool.*``)."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    groups: int | Literal["auto"] = Field(default="auto", union_mode="left_to_right")
    """Target groups, each of ``target.tp`` ranks on one node. ``auto``: all that the cluster has
    room for, where ranks take a share of it; else one."""
    gpus_per_rank: float | None = Field(default=None, gt=0)
    """GPUs that a rank takes, by default one on CUDA and none on the CPU. Below 1 several groups of
    one rank share a GPU, at the price of quiet measurements."""
    cpus_per_rank: float = Field(default=0.0, ge=0)
    """Cores that a rank takes in Ray's account; 0 shares them with everybody."""
    wait_seconds: float = Field(default=3600.0, ge=0)
    """How long to wait for a place that others hold, before giving up with a message."""

    def share(self, target: TargetConfig) -> Share:
        """What a rank takes; ``ValueError`` for ranks that would share a GPU with each other, or
        take one and a part of another."""
        usual = usual_share(target)
        gpus = usual.gpus if self.gpus_per_rank is None else self.gpus_per_rank
        if target.tp > 1 and gpus % 1:
            raise ValueError(
                f"pool.gpus_per_rank {gpus:g}: target.tp {target.tp} ranks need a GPU each; valid: "
                "whole numbers"
            )
        if gpus > 1 and gpus % 1:
            raise ValueError(
                f"pool.gpus_per_rank {gpus:g}: a rank takes whole GPUs or a share of one; valid: "
                "below 1, or a whole number"
            )
        return Share(gpus, self.cpus_per_rank)

    def size(self, target: TargetConfig) -> int:
        """Groups of the connected cluster; ``ValueError`` for more than it could ever hold."""
        share = self.share(target)
        takes = bool(share.gpus or share.cpus)
        if self.groups == "auto" and not takes:
            return 1
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        room = sum(num_fitting(node, share.bundle, target.tp) for node in nodes)
        if self.groups == "auto":
            return max(1, room)  # what has no room at all is refused where it is placed
        if takes and self.groups > room:
            raise ValueError(
                f"pool.groups {self.groups}: the cluster has room for {room} groups of "
                f"{target.tp} ranks"
            )
        return self.groups


class TargetPool:
    """The groups of one program; ``first`` is up from the beginning, :meth:`grow` starts more."""

    def __init__(
        self,
        target: TargetConfig,
        drafter: DrafterConfig,
        methods: Iterable[str],
        config: PoolConfig,
        tell: Tell,
    ) -> None:
        self.size = config.size(target)
        self._place = TemporaryDirectory(prefix="maskahead-leases-")
        self.leases = Leases.open(Path(self._place.name) / "leases.json")
        self._create = lambda: TargetGroup.create(
            target, drafter, tuple(methods), share=config.share(target)
        )
        self._waiting = Waiting(config.wait_seconds, TOLD_AFTER, self._tell)
        self._tell_user = tell
        self._groups: dict[str, TargetGroup] = {}
        self._threads: list[threading.Thread] = []
        self._closing = False
        self.first = self._new()

    @classmethod
    @contextmanager
    def open(
        cls,
        target: TargetConfig,
        drafter: DrafterConfig,
        methods: Iterable[str],
        config: PoolConfig,
        tell: Tell,
    ) -> Iterator[TargetPool]:
        """A pool whose first group is up; all of its groups end with the ``with`` block.

        ``tell`` is told what is waited for and what is lost. Raises ``ValueError`` for a target
        that cannot be opened, or placed within ``config.wait_seconds``.
        """
        pool = cls(target, drafter, methods, config, tell)
        try:
            pool.first.bring_up(pool._waiting)
            fetch(pool.leases.desk.expect.remote([pool.first.name]))
            pool._offer(pool.first)
            pool._start_thread(pool._revive)
            yield pool
        finally:
            pool.close()

    def grow(self, wanted: int) -> int:
        """Start groups beside the first one, at most ``wanted`` and ``size`` in all; returns how
        many that are. They join as they come up."""
        count = min(max(1, wanted), self.size)
        others = [self._new() for _ in range(count - len(self._groups))]
        fetch(self.leases.desk.expect.remote([group.name for group in others]))
        for group in others:
            self._start_thread(self._bring_up, group)
        return count

    def shrink(self, wanted: int) -> None:
        """Stop groups that are free beyond ``wanted``; one more where somebody else waits for a
        place, as long as one stays."""
        most = len(self._groups) - 1 if self.others_wait() else wanted
        retired = fetch(self.leases.desk.retire.remote(max(1, min(wanted, most))))
        for name in [name for name in retired if name in self._groups]:
            self._tell(f"{name}: stopped, its place is free for others")
            self._start_thread(self._groups.pop(name).stop)

    def others_wait(self) -> bool:
        """Whether another program's group waits for a place."""
        return any(
            entry["state"] == "PENDING"
            and entry["name"].startswith(PREFIX)
            and entry["name"] not in self._groups
            for entry in placement_group_table().values()
        )

    def close(self) -> None:
        """Stop all groups, those that are still starting too."""
        self._closing = True
        with ThreadPoolExecutor(len(self._groups)) as each:
            list(each.map(TargetGroup.stop, self._groups.values()))
        with suppress(RayActorError):  # an unanswered call would be made again, and complain
            fetch(self.leases.desk.end.remote())
        for thread in self._threads:
            thread.join()
        ray.kill(self.leases.desk)
        self._place.cleanup()

    def _new(self) -> TargetGroup:
        group = self._create()
        self._groups[group.name] = group
        return group

    def _tell(self, text: str) -> None:
        if not self._closing:
            self._tell_user(text)

    def _start_thread(self, work: Callable[..., object], *args: TargetGroup) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _bring_up(self, group: TargetGroup) -> None:
        """Bring a group up and offer it, or say why not; the others work meanwhile."""
        with suppress(RayActorError):  # the pool is closed meanwhile
            try:
                group.bring_up(self._waiting)
                self._offer(group)
            except Exception as error:  # the thread's edge: whoever waits for it must be told
                told = str(error) if isinstance(error, TOLD) else f"{type(error).__name__}: {error}"
                self._tell(f"{group.name}: {told}")
                fetch(self.leases.desk.give_up.remote(group.name, told))
                group.stop()  # else its place stays asked for, and is held once it comes free

    def _offer(self, group: TargetGroup) -> None:
        """Let holders have a group that is up."""
        if self.size > 1:
            self._tell(f"{group.name}: up on node {group.facts()['node'][:8]}")
        fetch(self.leases.desk.add.remote(group.name))

    def _revive(self) -> None:
        """Bring groups that were lost up again, wherever there is room now."""
        known = 0
        with suppress(RayActorError):  # the pool is closed
            while not self._closing:
                group, reason = fetch(self.leases.desk.next_loss.remote(known))
                known += 1
                if group is None:
                    self._tell(reason)
                else:
                    self._tell(f"{group}: {reason}; going on without it until there is room again")
                    self._start_thread(self._bring_up, self._groups[group])
