"""Who owns the ranks of a target: starts them together, and all of them anew when one is lost."""

import asyncio
import uuid
from contextlib import suppress
from typing import Any, NamedTuple

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayActorError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from actors.group_setup import GroupSetup
from actors.placing import (
    LOOK_SECONDS,
    PlaceLost,
    check_room,
    find_spot,
    is_lost,
    spell,
    standing,
    while_placed,
)
from actors.target_rank import GroupError, RemoteTargetRank

PLACEMENT_SECONDS = 20.0
START_SECONDS = 300.0
CLOSE_SECONDS = 5.0


class NoRoom(ValueError):
    """Some node of the cluster could hold the ranks, but others hold its place."""


class Lead(NamedTuple):
    """Rank 0 of the group; ``generation`` names this building of it among all others."""

    rank: ActorHandle
    generation: str


class GroupKeeper:
    """Every user of a target, in whatever process, gets rank 0 here and reports its loss here.

    Its own process may be lost too: Ray starts it again, it finds its place by ``name``, and the
    ranks, which end with their owner, are built anew when somebody asks for them. ``own_room`` is
    a place that the group's starter holds: for itself, then for each rank (:func:`group_room`).
    """

    def __init__(
        self, setup: GroupSetup, name: str, own_room: PlacementGroup | None = None
    ) -> None:
        self.setup = setup
        self.name = name
        self._own_room = own_room
        self._building = asyncio.Lock()
        self._stopped = False
        self._work: asyncio.Task[None] | None = None
        self._placement: PlacementGroup | None = None
        self._ranks: list[ActorHandle] = []
        self._generation = ""
        self._watch: asyncio.Task[None] | None = None

    async def lead(self, lost: str = "", patience: float = PLACEMENT_SECONDS) -> Lead:
        """The current rank 0; the group is built first if there is none, or if the current one is
        that of generation ``lost``.

        Raises ``ValueError`` when the configuration cannot be opened or placed, :class:`NoRoom`
        when its place did not come free within ``patience`` seconds (it stays asked for), and
        :class:`GroupError` when the ranks do not come up.
        """
        self._watch = self._watch or asyncio.ensure_future(self._watch_place())
        async with self._building:
            if self._stopped:  # who stood in line behind a building that was stopped
                raise GroupError(f"target group {self.name} was stopped")
            if not self._ranks or lost == self._generation:
                self._kill()
                self._work = asyncio.ensure_future(self._build(patience))
                try:
                    await self._work
                except asyncio.CancelledError:
                    raise GroupError(f"target group {self.name} was stopped") from None
            return Lead(self._ranks[0], self._generation)

    async def ranks(self) -> list[ActorHandle]:
        """All ranks of the current generation."""
        return self._ranks

    async def stop(self) -> None:
        """Let the ranks end, those that are still starting too, and give back what they held."""
        self._stopped = True
        for task in (self._work, self._watch):
            if task is not None:
                task.cancel()
        async with self._building:
            if self._ranks:
                closing = asyncio.ensure_future(self._ranks[0].close.remote())
                await asyncio.wait([closing], timeout=CLOSE_SECONDS)
            self._kill()
            self._give_place_back()

    async def _watch_place(self) -> None:
        """Leave a lost node, also when nobody uses the ranks (see :mod:`actors.placing`)."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            async with self._building:  # who builds looks for himself
                with suppress(Exception):  # a head that does not answer now is asked again
                    await self._leave_lost_node()

    async def _leave_lost_node(self) -> None:
        if self._placement and await is_lost(self._placement):
            self._give_place_back()

    def _give_place_back(self) -> None:
        if self._placement is not None:
            remove_placement_group(self._placement)
            self._placement = None

    async def _build(self, patience: float) -> None:
        while True:
            placement = self._own_room or await self._ask_for_place()
            if not await asyncio.to_thread(placement.wait, patience):
                bundle, tp = self.setup.share.bundle, self.setup.target.tp
                raise NoRoom(
                    f"{self.setup.named}: no node had room for {tp} ranks of {spell(bundle)} each "
                    f"within {patience:g} s; others hold it"
                )
            spot = await find_spot(placement)
            ranks = self._start_ranks(placement)
            try:
                await while_placed(placement, spot, bring_up(ranks))
            except PlaceLost:  # and once more, wherever there is room
                kill_all(ranks)
                self._give_place_back()
            except BaseException:
                kill_all(ranks)
                raise
            else:
                break
        self._ranks = ranks
        self._generation = uuid.uuid4().hex

    def _start_ranks(self, placement: PlacementGroup) -> list[ActorHandle]:
        first = 1 if self._own_room else 0
        return [
            RemoteTargetRank.options(
                num_gpus=self.setup.share.gpus,
                num_cpus=self.setup.share.cpus,
                scheduling_strategy=PlacementGroupSchedulingStrategy(placement, first + rank),
            ).remote(self.setup, rank)
            for rank in range(self.setup.target.tp)
        ]

    async def _ask_for_place(self) -> PlacementGroup:
        """Room for all ranks on one node; it is kept while ranks come and go."""
        check_room(self.setup)
        if self._placement is None:  # but an earlier life of this keeper may have asked for one
            self._placement = standing(self.name)
        await self._leave_lost_node()
        if self._placement is None:
            bundles = [self.setup.share.bundle for _ in range(self.setup.target.tp)]
            self._placement = placement_group(bundles, strategy="STRICT_PACK", name=self.name)
        return self._placement

    def _kill(self) -> None:
        kill_all(self._ranks)
        self._ranks = []


async def bring_up(ranks: list[ActorHandle]) -> None:
    """Let all ranks start, meet and load."""
    try:
        starting = asyncio.gather(*(rank.prepare.remote() for rank in ranks))
        ports = await asyncio.wait_for(starting, START_SECONDS)
        await asyncio.gather(*(rank.bring_up.remote(ports[0]) for rank in ranks))
    except TimeoutError as error:
        raise GroupError(f"ranks did not start within {START_SECONDS:g} s") from error
    except RayActorError as error:
        raise GroupError(f"a rank died while it started: {error}") from error


def kill_all(ranks: list[ActorHandle]) -> None:
    for rank in ranks:
        ray.kill(rank)


RemoteGroupKeeper: Any = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(GroupKeeper)
