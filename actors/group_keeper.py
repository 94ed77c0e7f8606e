"""Who owns the ranks of a target: starts them together, and all of them anew when one is lost."""

import asyncio
from typing import Any, NamedTuple

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayActorError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from actors.target_rank import GroupError, GroupSetup, RemoteTargetRank

PLACEMENT_SECONDS = 20.0
START_SECONDS = 300.0
CLOSE_SECONDS = 5.0


class Lead(NamedTuple):
    """Rank 0 of the group as it was built for the ``generation``-th time."""

    rank: ActorHandle
    generation: int


class GroupKeeper:
    """Every user of a target, in whatever process, gets rank 0 here and reports its loss here."""

    def __init__(self, setup: GroupSetup) -> None:
        self.setup = setup
        self._building = asyncio.Lock()
        self._placement: PlacementGroup | None = None
        self._ranks: list[ActorHandle] = []
        self._generation = 0

    async def lead(self, lost: int = 0) -> Lead:
        """The current rank 0; the group is built first if there is none, or if the current one is
        that of generation ``lost``.

        Raises ``ValueError`` when the configuration cannot be opened or placed, and
        :class:`GroupError` when the ranks do not come up.
        """
        async with self._building:
            if not self._ranks or lost == self._generation:
                self._kill()
                await self._build()
            return Lead(self._ranks[0], self._generation)

    async def ranks(self) -> list[ActorHandle]:
        """All ranks of the current generation."""
        return self._ranks

    async def stop(self) -> None:
        """Let the ranks end, and give back what they held."""
        async with self._building:
            if self._ranks:
                closing = asyncio.ensure_future(self._ranks[0].close.remote())
                await asyncio.wait([closing], timeout=CLOSE_SECONDS)
            self._kill()
            if self._placement is not None:
                remove_placement_group(self._placement)
                self._placement = None

    async def _build(self) -> None:
        placement = await asyncio.to_thread(self._place)
        ranks = [
            RemoteTargetRank.options(
                num_gpus=self.setup.num_gpus,
                scheduling_strategy=PlacementGroupSchedulingStrategy(placement, rank),
            ).remote(self.setup, rank)
            for rank in range(self.setup.target.tp)
        ]
        try:
            await bring_up(ranks)
        except BaseException:
            kill_all(ranks)
            raise
        self._ranks = ranks
        self._generation += 1

    def _place(self) -> PlacementGroup:
        """Room for all ranks on one node; it is kept while ranks come and go."""
        if self._placement is None:
            # A rank on CPUs holds no core, but Ray refuses a bundle of nothing.
            bundle = {"GPU": 1.0} if self.setup.num_gpus else {"CPU": 0.01}
            self._check_room(*next(iter(bundle.items())))
            bundles = [dict(bundle) for _ in range(self.setup.target.tp)]
            self._placement = placement_group(bundles, strategy="STRICT_PACK")
        if not self._placement.wait(PLACEMENT_SECONDS):
            remove_placement_group(self._placement)
            self._placement = None
            raise ValueError(
                f"{self.setup.named}: no node had room for {self.setup.target.tp} ranks within "
                f"{PLACEMENT_SECONDS:g} s; others hold it"
            )
        return self._placement

    def _check_room(self, kind: str, share: float) -> None:
        """Refuse at once what no node could hold even when idle."""
        nodes = [node["Resources"].get(kind, 0.0) for node in ray.nodes() if node["Alive"]]
        if max(nodes, default=0.0) < share * self.setup.target.tp:
            raise ValueError(
                f"{self.setup.named}: the ranks share one node, and the largest has "
                f"{max(nodes, default=0.0):g} {kind}s"
            )

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


RemoteGroupKeeper: Any = ray.remote(num_cpus=0)(GroupKeeper)
