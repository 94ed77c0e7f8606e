"""Who owns the ranks of a target: starts them together, and all of them anew when one is lost."""

import asyncio
import time
import uuid
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import ray
from ray.actor import ActorHandle
from ray.exceptions import ActorUnavailableError, RayActorError
from ray.util.placement_group import (
    PlacementGroup,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from actors.group_setup import GroupSetup, Share, usual_share
from actors.target_rank import GroupError, RemoteTargetRank
from models.config import TargetConfig

PLACEMENT_SECONDS = 20.0
START_SECONDS = 300.0
CLOSE_SECONDS = 5.0
PLACED_SECONDS = 2.0
"""Between two looks whether ranks still have their place."""
NODE_SECONDS = 40.0
"""In which Ray notices that a node is gone whose processes do not answer."""


class NoRoom(ValueError):
    """Some node of the cluster could hold the ranks, but others hold its place."""


class PlaceLost(Exception):
    """Ray took the place of starting ranks away, since its node is gone."""


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
        """Give a place back whose node is gone, also when nobody uses the ranks.

        Ray tries to find another one for it again and again, without a pause, before it looks at
        any other placement group of the whole cluster (its issue 65147): where there is no room,
        nobody's would ever be placed again.
        """
        while True:
            await asyncio.sleep(PLACED_SECONDS)
            async with self._building:  # who builds looks for himself
                with suppress(Exception):  # a head that does not answer now is asked again
                    await self._leave_lost_node()

    async def _leave_lost_node(self) -> None:
        if self._placement and (await find_spot(self._placement))[0] == "RESCHEDULING":
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
        self._check_room()
        if self._placement is None:
            self._placement = _standing(self.name)
        await self._leave_lost_node()
        if self._placement is None:
            bundles = [self.setup.share.bundle for _ in range(self.setup.target.tp)]
            self._placement = placement_group(bundles, strategy="STRICT_PACK", name=self.name)
        return self._placement

    def _check_room(self) -> None:
        """Refuse at once what no node could hold even when idle."""
        share, tp = self.setup.share.bundle, self.setup.target.tp
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if not any(num_fitting(node, share, tp) for node in nodes):
            best = max(nodes, key=lambda node: min(node.get(k, 0) for k in share), default={})
            held = spell({kind: best.get(kind, 0.0) for kind in share})
            raise ValueError(
                f"{self.setup.named}: its ranks need {spell(share)} each, on one node, and the "
                f"largest has {held}"
            )

    def _kill(self) -> None:
        kill_all(self._ranks)
        self._ranks = []


def group_room(target: TargetConfig) -> list[dict[str, float]]:
    """The bundles of a place that holds a group's starter, which takes nothing, and its ranks."""
    return [Share().bundle, *(usual_share(target).bundle for _ in range(target.tp))]


def num_fitting(node: Mapping[str, float], share: Mapping[str, float], tp: int) -> int:
    """How many groups of ``tp`` ranks an idle node holds. A share of a GPU is one of a single GPU:
    two of them hold four ranks of 0.4, not five."""

    def holds(kind: str, amount: float) -> int:
        there = node.get(kind, 0.0)
        if kind == "GPU" and amount < 1:
            return int(there) * _whole(1 / amount) // tp
        return _whole(there / (amount * tp))

    return min(holds(kind, amount) for kind, amount in share.items())


def _whole(number: float) -> int:
    """Rounded down, but for what floating point took from it."""
    return int(number + 1e-9)


def spell(amounts: Mapping[str, float]) -> str:
    """As in ``2 GPUs, 4 CPUs``."""
    return ", ".join(f"{amount:g} {kind}s" for kind, amount in amounts.items())


def _standing(name: str) -> PlacementGroup | None:
    """The placement that an earlier life of this keeper asked for."""
    try:
        return get_placement_group(name)
    except ValueError:
        return None


async def while_placed(
    placement: PlacementGroup, spot: tuple[str, Any], starting: Coroutine[Any, Any, None]
) -> None:
    """Let ranks start at ``spot``; raises :class:`PlaceLost` when it is not theirs any more.

    Ray notices a lost node late, and ranks that were sent there are pending until then, or die.
    """
    work = asyncio.ensure_future(starting)
    try:
        while not (await asyncio.wait([work], timeout=PLACED_SECONDS))[0]:
            if await find_spot(placement) != spot:
                raise PlaceLost
        await work
    except GroupError as error:
        silent = isinstance(error.__cause__, ActorUnavailableError)
        if await _is_taken(placement, spot, NODE_SECONDS if silent else 0.0):
            raise PlaceLost from error
        raise
    finally:
        work.cancel()


async def find_spot(placement: PlacementGroup) -> tuple[str, Any]:
    """Whether a placement group stands, and the nodes of its bundles: it moves off a lost one."""
    facts: dict = await asyncio.to_thread(placement_group_table, placement)
    return facts["state"], facts["bundles_to_node_id"]


async def _is_taken(placement: PlacementGroup, spot: tuple[str, Any], seconds: float) -> bool:
    """Whether a placement group has left ``spot``, or does within so many seconds."""
    ended = time.monotonic() + seconds
    while (stands := await find_spot(placement) == spot) and time.monotonic() < ended:
        await asyncio.sleep(PLACED_SECONDS)
    return not stands


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
