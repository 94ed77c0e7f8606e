"""SimSD's small model in an actor of its own: it drafts the next block while the target verifies
the one before.

Distributions stay with the small model: the target's process gets each token's own
log-probability, and one whole row only where a token was rejected.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import ray
import torch
from ray.actor import ActorHandle
from torch import Tensor

from decoders.options import DecodeOptions
from decoders.simsd.draft import Ask, BlockDraft
from decoders.simsd.opening import open_small_model
from decoders.simsd.small_model import common_length
from decoders.state import State
from drafters.config import DrafterConfig
from models.spec import TargetSpec


@dataclass(frozen=True)
class Change:
    """An ask on its way: of the text that was sent before, ``keep`` tokens stay, ``new`` follow.
    ``number`` names the draft among all that are asked for."""

    slot: int
    number: int
    keep: int
    new: tuple[int, ...]
    state: State
    options: DecodeOptions
    noise_seed: int


class SmallModelActor:
    """A small model apart from its target."""

    def __init__(self, target_folder: Path, spec: TargetSpec, drafter: DrafterConfig) -> None:
        torch.set_num_threads(1)
        self.model = open_small_model(target_folder, spec, drafter)
        self._texts: dict[int, list[int]] = {}
        self._kept: dict[int, dict[int, BlockDraft]] = {}

    def draft(self, changes: Sequence[Change]) -> list[BlockDraft] | BlockDraft:
        """Drafts without their distributions, which :meth:`distribution` still knows: as many
        return values (of a Ray call) as changes."""
        asks = []
        for change in changes:
            text = self._texts.setdefault(change.slot, [])
            text[change.keep :] = change.new
            asks.append(Ask(change.slot, text, change.state, change.options, change.noise_seed))
        drafts = self.model.draft(asks)
        for change, draft in zip(changes, drafts, strict=True):
            kept = self._kept.setdefault(change.slot, {})
            kept[change.number] = draft
            # The one that is being verified, and the one begun behind it.
            self._kept[change.slot] = dict(list(kept.items())[-2:])
        sent = [replace(draft, distribution=_elsewhere) for draft in drafts]
        return sent if len(sent) > 1 else sent[0]

    def distribution(self, slot: int, number: int, index: int) -> Tensor:
        """``[V]`` log-probabilities of one token of a draft."""
        return self._kept[slot][number].distribution(index).cpu()

    def leave(self, slot: int) -> None:
        """Forget the slot."""
        self._texts.pop(slot, None)
        self._kept.pop(slot, None)
        self.model.leave(slot)

    def num_forwards(self) -> int:
        """Forwards so far."""
        return self.model.num_forwards


def _elsewhere(index: int) -> Tensor:
    raise AssertionError("the distribution stays in the small model's process")


@dataclass(frozen=True)
class Call:
    """A draft that the actor makes or has made; ``answer`` is its object reference."""

    ask: Ask
    number: int
    answer: Any


class RemoteSmallModel:
    """Stands for a :class:`SmallModelActor` beside the target; :meth:`ahead` really begins.

    What was begun and is asked for is used; a block that turned out otherwise is rolled back by
    the small model, which keeps of its prefix what agrees with the text that it is asked about.
    """

    def __init__(self, actor: ActorHandle, overlap: bool = True) -> None:
        self.actor = actor
        self.overlap = overlap
        self.num_used = self.num_begun = 0
        """Drafts begun ahead, and how many of them were used."""
        self._sent: dict[int, list[int]] = {}
        self._begun: dict[int, Call] = {}
        self._numbers = count()

    @property
    def num_forwards(self) -> int:
        """Of the small model."""
        return _fetched(self.actor.num_forwards.remote())

    def draft(self, asks: Sequence[Ask]) -> list[BlockDraft]:
        """One call for all asks that were not begun ahead."""
        begun = {ask.slot: self._begun.pop(ask.slot, None) for ask in asks}
        fresh = [ask for ask in asks if not _is_asked(begun[ask.slot], ask)]
        self.num_used += len(asks) - len(fresh)
        calls = begun | {call.ask.slot: call for call in self._call(fresh)}
        return [self._fetch(calls[ask.slot]) for ask in asks]

    def ahead(self, asks: Sequence[Ask]) -> None:
        """Begin to draft what is likely asked next."""
        if self.overlap:
            self._begun |= {call.ask.slot: call for call in self._call(asks)}
            self.num_begun += len(asks)

    def leave(self, slot: int) -> None:
        """Let the actor forget the slot."""
        self._begun.pop(slot, None)
        if self._sent.pop(slot, None) is not None:
            self.actor.leave.remote(slot)

    def _call(self, asks: Sequence[Ask]) -> list[Call]:
        if not asks:
            return []
        changes = []
        for ask in asks:
            sent = self._sent.setdefault(ask.slot, [])
            keep = common_length(sent, ask.text)
            sent[keep:] = new = tuple(ask.text[keep:])
            rest = (ask.state, ask.options, ask.noise_seed)
            changes.append(Change(ask.slot, next(self._numbers), keep, new, *rest))
        answers = self.actor.draft.options(num_returns=len(asks)).remote(changes)
        answers = answers if len(asks) > 1 else [answers]
        return [
            Call(ask, change.number, answer)
            for ask, change, answer in zip(asks, changes, answers, strict=True)
        ]

    def _fetch(self, call: Call | None) -> BlockDraft:
        assert call is not None
        row = partial(self._distribution, call.ask.slot, call.number)
        return replace(_fetched(call.answer), distribution=row)

    def _distribution(self, slot: int, number: int, index: int) -> Tensor:
        return _fetched(self.actor.distribution.remote(slot, number, index))


def _fetched(answer: Any) -> Any:
    """What a call to the actor returned."""
    return ray.get(answer)


def _is_asked(begun: Call | None, ask: Ask) -> bool:
    """Whether what was begun is what is asked."""
    if begun is None:
        return False
    own = begun.ask
    settings = (own.state, own.options, own.noise_seed) == (ask.state, ask.options, ask.noise_seed)
    return settings and list(own.text) == list(ask.text)


def open_remote_small_model(
    target_folder: Path, spec: TargetSpec, drafter: DrafterConfig, where: Any
) -> RemoteSmallModel:
    """The small model in a new actor; on a GPU it takes one of its own."""
    num_gpus = int(drafter.device.startswith("cuda"))
    actor = RemoteSmallModelActor.options(scheduling_strategy=where, num_gpus=num_gpus).remote(
        target_folder, spec, drafter
    )
    _fetched(actor.num_forwards.remote())  # a pair that does not fit fails here, not in a round
    return RemoteSmallModel(actor, drafter.ahead)


RemoteSmallModelActor: Any = ray.remote(num_cpus=0)(SmallModelActor)
