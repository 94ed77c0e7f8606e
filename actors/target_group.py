"""A target of one or more ranks as its users see it: one call, whatever happens to the ranks."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayActorError, RayError
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from actors.group_keeper import PLACEMENT_SECONDS, Lead, NoRoom, RemoteGroupKeeper
from actors.group_setup import GroupSetup, Share, usual_share
from actors.remote_calls import fetch, root_cause
from actors.target_rank import GroupError
from decoders.options import METHODS, DecodeOptions
from drafters.config import DrafterConfig
from models.config import TargetConfig

if TYPE_CHECKING:
    from actors.batching import Delta
    from decoders.request import Request
    from decoders.trace import Trace

NAMESPACE = "maskahead"
MAX_BATCH = 8
"""Streamed requests that share a forward, unless somebody says otherwise."""
LONGEST_SILENCE = 60.0
"""Seconds between two messages that a place is waited for, at most."""
PREFIX = "target-"
"""Of the names of groups that were given none, and of their placement groups."""
LOST = (GroupError, RayActorError)


class GroupGone(GroupError):
    """A group that was up has no place to be rebuilt in, or has no keeper any more."""


@dataclass(frozen=True)
class Waiting:
    """How long to wait for a group's place, and who is told that it is waited for: after the
    ``first`` seconds, then less and less often."""

    seconds: float = PLACEMENT_SECONDS
    first: float = PLACEMENT_SECONDS
    tell: Callable[[str], None] = lambda text: None


class TargetGroup:
    """A handle that any process of the cluster may hold (it can be pickled, or had by name).

    Its starter stops the ranks by leaving the ``with`` block; other holders only let go.
    """

    def __init__(
        self, name: str, keeper: Any, owned: bool = False, patience: float = PLACEMENT_SECONDS
    ) -> None:
        """``patience``: seconds in which a group that was lost must find a place again."""
        self.name = name
        self.keeper = keeper
        self.owned = owned
        self.patience = patience
        self._lead: Lead | None = None
        self._lost = ""

    @classmethod
    def start(
        cls,
        target: TargetConfig,
        drafter: DrafterConfig,
        methods: Iterable[str] = METHODS,
        max_batch: int = MAX_BATCH,
        max_cache_tokens: int | None = None,
        name: str | None = None,
        own_room: PlacementGroup | None = None,
    ) -> TargetGroup:
        """Load a target, once, on ``target.tp`` ranks; returns when it can decode. They are placed
        in the ``own_room`` of the caller, if it has one.

        Raises ``ValueError`` for a target that cannot be opened, split or placed.
        """
        group = cls.create(
            target,
            drafter,
            methods,
            max_batch,
            name,
            max_cache_tokens=max_cache_tokens,
            own_room=own_room,
        )
        try:
            group.bring_up(Waiting())
        except BaseException:
            group.stop()
            raise
        return group

    @classmethod
    def create(
        cls,
        target: TargetConfig,
        drafter: DrafterConfig,
        methods: Iterable[str] = METHODS,
        max_batch: int = MAX_BATCH,
        name: str | None = None,
        share: Share | None = None,
        max_cache_tokens: int | None = None,
        own_room: PlacementGroup | None = None,
    ) -> TargetGroup:
        """A group that is still to be brought up; each rank takes ``share`` of its node."""
        # Imported here: who attaches to a group needs no torch.
        from actors.loading import absolute_paths, check_target

        check_target(target)
        paths = absolute_paths(target, drafter)
        share = share or usual_share(target)
        setup = GroupSetup(*paths, tuple(methods), max_batch, share, max_cache_tokens)
        name = name or f"{PREFIX}{uuid.uuid4().hex[:8]}"
        # Here, so that it is lost with its starter and not with some other node.
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        keeper = RemoteGroupKeeper.options(
            name=name, namespace=NAMESPACE, scheduling_strategy=here
        ).remote(setup, name, own_room)
        return cls(name, keeper, owned=True)

    def bring_up(self, waiting: Waiting) -> None:
        """Wait for the group's place and load the target.

        Raises ``ValueError`` for a target that cannot be opened or placed.
        """
        ended = time.monotonic() + waiting.seconds
        patience = waiting.first
        while True:
            left = max(0.0, ended - time.monotonic())
            try:
                self._lead = fetch(self.keeper.lead.remote(self._lost, min(patience, left)))
                return
            except NoRoom as error:
                if left <= patience:
                    raise
                waiting.tell(f"{error}; waiting up to {left - patience:.0f} s more")
                patience = min(2 * patience, LONGEST_SILENCE)

    @classmethod
    def attach(cls, name: str, patience: float = PLACEMENT_SECONDS) -> TargetGroup:
        """The running group of that name; ``ValueError`` if there is none."""
        try:
            return cls(name, ray.get_actor(name, namespace=NAMESPACE), patience=patience)
        except ValueError as error:
            actors: Any = ray.util.list_named_actors(all_namespaces=True)
            running = sorted(a["name"] for a in actors if a["namespace"] == NAMESPACE)
            known = ", ".join(running) or "none"
            raise ValueError(f"target group {name!r} is not running; running: {known}") from error

    def generate(
        self, rows: Sequence[Mapping[str, Any]], options: DecodeOptions, trace: bool = False
    ) -> list[dict[str, Any]]:
        """Output rows in the order of the prompt ``rows``, from one caller at a time.

        When a rank is lost the group is rebuilt and the call made again, once: outputs depend on
        nothing but their arguments. Raises ``ValueError`` for bad input, :class:`GroupError` when
        the second attempt fails too.
        """
        return self._ask(lambda rank: rank.generate.remote(list(rows), options, trace))

    def record(
        self, rows: Sequence[Mapping[str, Any]], options: DecodeOptions, hidden: bool = False
    ) -> list[Trace]:
        """Traces of a draft-free run of ``options``, in the order of the prompt ``rows``; with
        ``hidden``, with the target's hidden states."""
        return self._ask(lambda rank: rank.record.remote(list(rows), options, hidden))

    def facts(self) -> dict[str, Any]:
        """What rank 0 holds: digest and spec of the target, device, memory, load."""
        return self._ask(lambda rank: rank.facts.remote())

    def ping(self) -> int:
        """Process id of rank 0, also while it decodes."""
        return self._ask(lambda rank: rank.ping.remote())

    async def stream(
        self, request: Request, stop: Sequence[str] = ()
    ) -> AsyncGenerator[Delta, None]:
        """Deltas of one answer from the running batch; closing the generator takes it out.

        A stream is never made again by itself, since its beginning has been handed out: when a
        rank is lost it ends with :class:`GroupError`, and the group is rebuilt for the next one.
        """
        with self._told_as_gone():
            lead = self._lead = self._lead or await self.keeper.lead.remote(self._lost)
        deltas = lead.rank.stream.options(num_returns="streaming").remote(request, tuple(stop))
        try:
            async for delta in deltas:
                yield await delta
        except RayError as error:
            cause = root_cause(error)
            if isinstance(cause, LOST):
                self._lose(lead)
                self.keeper.lead.remote(self._lost)
                raise GroupError(f"target group {self.name} was lost: {cause}") from error
            raise cause from None
        finally:
            ray.cancel(deltas)

    def abandon(self) -> None:
        """End rank 0 in the middle of whatever it does; the next call finds the group rebuilt."""
        ray.kill((self._lead or self._find_lead()).rank)

    def stop(self) -> None:
        """End the ranks and their keeper; for every holder of the group."""
        with suppress(RayActorError):
            ray.get(self.keeper.stop.remote())
        ray.kill(self.keeper)

    def __enter__(self) -> TargetGroup:
        return self

    def __exit__(self, *_: object) -> None:
        if self.owned:
            self.stop()

    def __reduce__(self) -> tuple[type[TargetGroup], tuple[str, Any]]:
        return TargetGroup, (self.name, self.keeper)

    def _ask(self, call: Callable[[ActorHandle], Any]) -> Any:
        lead = self._find_lead()
        try:
            return fetch(call(lead.rank))
        except LOST:
            self._lose(lead)
        lead = self._find_lead()
        try:
            return fetch(call(lead.rank))
        except LOST as error:
            self._lose(lead)
            raise GroupError(
                f"target group {self.name} was rebuilt and failed again: {error}"
            ) from error

    def _find_lead(self) -> Lead:
        with self._told_as_gone():
            lead = self._lead = self._lead or fetch(
                self.keeper.lead.remote(self._lost, self.patience)
            )
        return lead

    @contextmanager
    def _told_as_gone(self) -> Iterator[None]:
        """Whatever keeps a group that was up from being built again is no caller's bad input."""
        try:
            yield
        except RayActorError as error:
            raise GroupGone(f"target group {self.name} is not running any more") from error
        except ValueError as error:
            told = root_cause(error)
            raise GroupGone(f"target group {self.name} was lost: {told}") from error

    def _lose(self, lead: Lead) -> None:
        """From now on ask for a later generation than ``lead``."""
        self._lead, self._lost = None, lead.generation
