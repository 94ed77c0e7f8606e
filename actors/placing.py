"""The place of a target's ranks: a placement group on one node, and what becomes of it.

Ray notices a lost node late. Then it looks for another one for the placement groups that stood
there: again and again, without a pause, and before it looks at any other of the whole cluster (its
pull requests 65007 and 65970 are about that). Where there is no room nobody's would ever be placed
again, so such a place is given back.
"""

import asyncio
import time
from collections.abc import Coroutine, Mapping
from typing import Any, NamedTuple

import ray
from ray.exceptions import ActorUnavailableError
from ray.util.placement_group import PlacementGroup, get_placement_group, placement_group_table

from actors.group_setup import GroupSetup, Share, usual_share
from actors.target_rank import GroupError
from models.config import TargetConfig

LOOK_SECONDS = 2.0
"""Between two looks whether ranks still have their place."""
LOSS_SECONDS = 40.0
"""In which Ray notices that a node is gone whose processes do not answer."""


class PlaceLost(Exception):
    """Ray took the place of starting ranks away, since its node is gone."""


class Spot(NamedTuple):
    """Where a placement group is."""

    state: str
    """Ray's: ``CREATED``, ``PENDING``, or ``RESCHEDULING`` once its node was lost."""
    nodes: Mapping[int, str]
    """Node id of each bundle; an empty one of one that is not placed."""


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


def check_room(setup: GroupSetup) -> None:
    """Refuse at once what no node could hold even when idle."""
    share, tp = setup.share.bundle, setup.target.tp
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if not any(num_fitting(node, share, tp) for node in nodes):
        best = max(nodes, key=lambda node: min(node.get(k, 0) for k in share), default={})
        held = spell({kind: best.get(kind, 0.0) for kind in share})
        raise ValueError(
            f"{setup.named}: its ranks need {spell(share)} each, on one node, and the "
            f"largest has {held}"
        )


def spell(amounts: Mapping[str, float]) -> str:
    """As in ``2 GPUs, 4 CPUs``."""
    return ", ".join(f"{amount:g} {kind}s" for kind, amount in amounts.items())


def standing(name: str) -> PlacementGroup | None:
    """The placement group of that name, if there is one."""
    try:
        return get_placement_group(name)
    except ValueError:
        return None


async def while_placed(
    placement: PlacementGroup, spot: Spot, starting: Coroutine[Any, Any, None]
) -> None:
    """Let ranks start at ``spot``; raises :class:`PlaceLost` when it is not theirs any more.

    Until Ray notices that its node is lost, ranks that were sent there are pending, or die.
    """
    work = asyncio.ensure_future(starting)
    try:
        while not (await asyncio.wait([work], timeout=LOOK_SECONDS))[0]:
            if await find_spot(placement) != spot:
                raise PlaceLost
        await work
    except GroupError as error:
        silent = isinstance(error.__cause__, ActorUnavailableError)
        if await is_taken(placement, spot, LOSS_SECONDS if silent else 0.0):
            raise PlaceLost from error
        raise
    finally:
        work.cancel()


async def find_spot(placement: PlacementGroup) -> Spot:
    """Where a placement group is now."""
    facts: dict = await asyncio.to_thread(placement_group_table, placement)
    return Spot(facts["state"], facts["bundles_to_node_id"])


async def is_lost(placement: PlacementGroup) -> bool:
    """Whether a placement group stood on a node that was lost, and stands nowhere now."""
    return (await find_spot(placement)).state == "RESCHEDULING"


async def is_taken(placement: PlacementGroup, spot: Spot, seconds: float) -> bool:
    """Whether a placement group has left ``spot``, or does within so many seconds."""
    ended = time.monotonic() + seconds
    while (stands := await find_spot(placement) == spot) and time.monotonic() < ended:
        await asyncio.sleep(LOOK_SECONDS)
    return not stands
