"""A drafter in an actor of its own, and what stands for it beside the target."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
import torch
from ray.actor import ActorHandle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from actors.small_model_actor import open_remote_small_model
from decoders.companion import Companion
from decoders.options import ORACLES
from decoders.proposers.base import Draft, Proposer, View
from decoders.proposers.oracle import open_oracles
from decoders.proposers.registry import open_proposers
from decoders.simsd.companion import SimSD
from drafters.config import DrafterConfig
from models.spec import TargetSpec


class DrafterActor:
    """The proposers of one target, apart from it."""

    def __init__(
        self, target_folder: Path, spec: TargetSpec, drafter: DrafterConfig, methods: set[str]
    ) -> None:
        torch.set_num_threads(1)
        self.proposers = open_proposers(target_folder, spec, drafter, methods)

    def methods(self) -> list[str]:
        """The methods that it can draft for."""
        return list(self.proposers)

    def propose(self, method: str, views: Sequence[View]) -> list[list[Draft]]:
        """What the method's proposer drafts."""
        return self.proposers[method].propose(views)


class RemoteProposer:
    """One method's proposer in a :class:`DrafterActor`: the same drafts, one call a round."""

    def __init__(self, actor: ActorHandle, method: str) -> None:
        self.actor = actor
        self.method = method

    def propose(self, views: Sequence[View]) -> list[list[Draft]]:
        # Whose block it is stays here: only oracles may read it, and it carries the whole prompt.
        sent = [replace(view, origin=None) for view in views]
        return ray.get(self.actor.propose.remote(self.method, sent))


def open_remote_drafters(
    target_folder: Path, spec: TargetSpec, drafter: DrafterConfig, methods: set[str]
) -> dict[str, Proposer | Companion]:
    """:func:`open_drafters` in new actors near this process; they live as long as these do."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    actor = RemoteDrafter.options(scheduling_strategy=here).remote(
        target_folder, spec, drafter, methods - set(ORACLES)
    )
    remote: dict[str, Proposer | Companion] = {
        method: RemoteProposer(actor, method) for method in ray.get(actor.methods.remote())
    }
    if methods & set(ORACLES):
        # Oracles hold no model, and read what only this process records.
        remote |= open_oracles()
    if "simsd" in methods:
        remote["simsd"] = SimSD(open_remote_small_model(target_folder, spec, drafter, here))
    return remote


RemoteDrafter: Any = ray.remote(num_cpus=0)(DrafterActor)
