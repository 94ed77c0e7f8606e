"""The one loop of every state-based method, for a batch of requests in one forward.

Each call of :meth:`Decoder.step` is one round: draft, one target forward over every request's root
and drafts, walk, commit. Requests join and leave between rounds; none depends on its neighbours.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import count, islice
from time import perf_counter
from typing import Protocol

import torch
from torch import Tensor

from decoders.auto_budget import AutoBudget
from decoders.cost_curve import measure_cost_curve
from decoders.judge import Judged, judge
from decoders.proposers.base import Draft, Origin, Proposer, View
from decoders.request import Request, Result, Round
from decoders.rules import Step
from decoders.sequence import Copies, Sequence
from decoders.stale import Stale
from decoders.state import State
from decoders.walk import Walk, walk
from models.spec import TargetSpec
from models.target import NO_PARENT, CopyBatch


class Forwarder(Protocol):
    """What the loop needs of a target, on one rank or on several."""

    spec: TargetSpec

    @property
    def placement(self) -> tuple[str, ...]: ...
    def open_slot(self, slot: int, length: int = 0, refresh: int = 0) -> None: ...
    def close_slot(self, slot: int) -> None: ...
    def prefill(self, slot: int, tokens: "tuple[int, ...]") -> None: ...
    def forward(self, batch: CopyBatch) -> Tensor: ...


class Observer(Protocol):
    """Sees every round: the last accepted state, what the target said of it, its step there."""

    def observe(self, sequence: Sequence, state: State, stale: Stale, step: Step) -> None: ...


class Decoder:
    """Decodes requests on one target; ``proposers`` maps a method's name to its proposer."""

    def __init__(
        self,
        target: Forwarder,
        proposers: Mapping[str, Proposer],
        observer: Observer | None = None,
        slots: Iterator[int] | None = None,
        auto: AutoBudget | None = None,
    ) -> None:
        """``slots`` are free slot numbers, ``auto`` is what was learnt for ``budget: auto``:
        batches that share a target share both."""
        self.target = target
        self.proposers = proposers
        self.observer = observer
        self.active: dict[str, Sequence] = {}
        self._slots = count() if slots is None else slots
        self.auto = auto or AutoBudget(lambda anew: measure_cost_curve(target, next(self._slots)))

    def add(self, request: Request) -> Sequence:
        """Let a request join the batch; raises ``ValueError`` for one that cannot be decoded."""
        check_request(request, self.target.spec)
        if request.options.drafts and request.options.method not in self.proposers:
            raise ValueError(f"decode.method {request.options.method}: its drafter is not loaded")
        if request.id in self.active:
            raise ValueError(f"id {request.id!r} is already being decoded")
        sequence = Sequence(request, next(self._slots), self.target.spec)
        refresh = request.options.cache_refresh
        self.target.open_slot(sequence.slot, sequence.whole_length, refresh)
        self.active[request.id] = sequence
        return sequence

    def remove(self, request_id: str) -> None:
        """Drop a request (finished or cancelled) and free its prefix."""
        self.target.close_slot(self.active.pop(request_id).slot)

    @torch.inference_mode()
    def step(self) -> list[Result]:
        """One forward for every active request; returns those that it finished."""
        done = [s for s in self.active.values() if s.request.options.max_new_tokens == 0]
        running = [s for s in self.active.values() if s not in done]
        for sequence in running:
            self._prefill(sequence)
        if running:
            done += self._round(running)
        for sequence in done:
            self.remove(sequence.request.id)
        return [sequence.result() for sequence in done]

    def _prefill(self, sequence: Sequence) -> None:
        if not sequence.prefilled and sequence.aligned_prompt:
            prompt = sequence.request.prompt_ids[: sequence.aligned_prompt]
            self.target.prefill(sequence.slot, prompt)
            # A bidirectional target only notes the prompt down: that is no forward.
            if sequence.spec.topology == "block_causal":
                sequence.rounds.append(Round("prefill"))
        sequence.prefilled = True

    def _round(self, sequences: list[Sequence]) -> list[Sequence]:
        views, proposed = self._propose(sequences, self._drafting(sequences))
        started = perf_counter()
        drafts = self._allot(sequences, views, proposed)
        parts = [
            sequence.copies([draft.state for draft in found])
            for sequence, found in zip(sequences, drafts, strict=True)
        ]
        batch, num_rows = copy_batch(sequences, parts)
        prefix = mean_prefix(sequences)
        logits_RV = self.target.forward(batch)
        autos = [is_auto(sequence) for sequence in sequences]
        done = []
        # All are begun before the first is read, so that a GPU is waited for once.
        judged = [
            judge(sequence, part.states[part.root :], rows)
            for sequence, part, rows in zip(
                sequences, parts, logits_RV.split(num_rows), strict=True
            )
        ]
        for index, (sequence, part, told) in enumerate(zip(sequences, parts, judged, strict=True)):
            result, finished = self._commit(sequence, part, told)
            if finished:
                done.append(sequence)
            view = views[index]
            if view is not None and autos[index]:
                self.auto.observe(view, drafts[index], result.reached(part.states[part.root]))
        if any(autos):
            seconds, copies = perf_counter() - started, len(batch.slots)
            plain = copies - sum(len(f) for f, auto in zip(drafts, autos, strict=True) if auto)
            self.auto.forwarded(seconds, len(sequences), plain, copies, prefix)
        return done

    def _drafting(self, sequences: list[Sequence]) -> list[bool]:
        """Which sequences draft in this round."""
        able = [
            sequence.request.options.drafts
            and sequence.stale is not None
            and sequence.request.options.method in self.proposers
            for sequence in sequences
        ]
        asking = [s for s, drafts in zip(sequences, able, strict=True) if drafts and is_auto(s)]
        admitted = self.auto.admitted(sequence.kind for sequence in asking)
        return [
            drafts and (not is_auto(s) or admitted[s.kind])
            for s, drafts in zip(sequences, able, strict=True)
        ]

    def _propose(
        self, sequences: list[Sequence], drafting: list[bool]
    ) -> tuple[list[View | None], list[list[Draft]]]:
        """What every drafting sequence showed its proposer, and what that drafted."""
        views: list[View | None] = [None] * len(sequences)
        drafts: list[list[Draft]] = [[] for _ in sequences]
        for method, proposer in self.proposers.items():
            asking = [
                index
                for index, sequence in enumerate(sequences)
                if drafting[index] and sequence.request.options.method == method
            ]
            if not asking:
                continue
            started = perf_counter()
            shown = [self._view(sequences[index], sequences) for index in asking]
            proposed = proposer.propose(shown)
            seconds = (perf_counter() - started) / len(asking)
            for index, view, found in zip(asking, shown, proposed, strict=True):
                views[index], drafts[index] = view, found
            asked = {
                sequences[index].kind: sequences[index].request.options
                for index in asking
                if is_auto(sequences[index])
            }
            for options in asked.values():
                self.auto.proposed(options, seconds)
        return views, drafts

    def _view(self, sequence: Sequence, beside: list[Sequence]) -> View:
        view = view_of(sequence)
        if not is_auto(sequence):
            return view
        return self.auto.limited(view, len(beside), mean_prefix(beside))

    def _allot(
        self, sequences: list[Sequence], views: list[View | None], drafts: list[list[Draft]]
    ) -> list[list[Draft]]:
        """Cut the drafts of ``auto`` requests to what the forward is worth."""
        shared = [
            (index, view)
            for index, view in enumerate(views)
            if view is not None and is_auto(sequences[index])
        ]
        if not shared:
            return drafts
        deciding = {index for index, _ in shared}
        fixed = sum(len(found) for i, found in enumerate(drafts) if i not in deciding)
        stored = sum(sequence.unstored is not None for sequence in sequences)
        chosen = self.auto.choose(
            [view for _, view in shared],
            [drafts[index] for index, _ in shared],
            requests=len(sequences),
            copies=len(sequences) + stored + fixed,
            prefix=mean_prefix(sequences),
        )
        for (index, _), found in zip(shared, chosen, strict=True):
            drafts[index] = found
        return drafts

    def _commit(self, sequence: Sequence, part: Copies, judged: Judged) -> tuple[Walk, bool]:
        states = part.states[part.root :]
        copy_of = {state: index for index, state in enumerate(states)}
        result = walk(states[0], copy_of, judged.step, sequence.end.finished)
        if self.observer is not None:
            stale = judged.stale(result.last)
            self.observer.observe(sequence, states[result.last], stale, result.steps[-1])
        # Read only when a proposer asks: in a round without drafts it would be paid for nothing.
        drafts = sequence.request.options.drafts
        later = judged.stale_later(result.last) if drafts else None
        return result, sequence.apply(part, result, later)


def is_auto(sequence: Sequence) -> bool:
    """Whether its budget is decided in every round."""
    options = sequence.request.options
    return options.drafts and options.budget == "auto"


def mean_prefix(sequences: list[Sequence]) -> float:
    """Tokens before the active blocks, in the mean."""
    return sum(sequence.block_start for sequence in sequences) / len(sequences)


def view_of(sequence: Sequence) -> View:
    """What a proposer may see of a sequence."""
    assert sequence.stale is not None
    return View(
        root=sequence.state,
        stale=sequence.stale(),
        options=sequence.request.options,
        end=sequence.end,
        origin=Origin(sequence.request, sequence.block_start),
    )


def copy_batch(sequences: list[Sequence], parts: list[Copies]) -> tuple[CopyBatch, list[int]]:
    """All requests' copies side by side, and how many logit rows each request asked for."""
    slots: list[int] = []
    parents: list[int] = []
    states: list[State] = []
    stores: list[bool] = []
    rows: list[Tensor] = []
    for sequence, part in zip(sequences, parts, strict=True):
        first = len(states)
        slots += [sequence.slot] * len(part.states)
        parents += [p if p == NO_PARENT else first + p for p in part.parents]
        stores += part.stores
        states += part.states
        asked = torch.tensor(part.states[part.root :]) == sequence.spec.mask_token_id
        asked[:, sequence.editable_from :] = True
        offset = (first + part.root) * sequence.spec.block_size
        rows.append(asked.flatten().nonzero().squeeze(1) + offset)
    batch = CopyBatch(slots, torch.tensor(states), parents, stores, torch.cat(rows))
    return batch, [len(r) for r in rows]


def check_request(request: Request, spec: TargetSpec) -> None:
    """Raise ``ValueError`` for a prompt that this target cannot take."""
    for token in request.prompt_ids:
        if not 0 <= token < spec.vocab_size or token == spec.mask_token_id:
            raise ValueError(
                f"prompt_ids of {request.id}: {token} is not a text token of this target "
                f"(0..{spec.vocab_size - 1} without the mask id {spec.mask_token_id})"
            )
    length = len(request.prompt_ids) + request.options.max_new_tokens
    if length > spec.max_positions:
        raise ValueError(
            f"prompt of {request.id} and max_new_tokens make {length} positions; this target "
            f"has {spec.max_positions}"
        )
    if request.options.cache_refresh and spec.topology != "bidirectional":
        raise ValueError(
            f"decode.cache_refresh {request.options.cache_refresh}: the prefix cache of this "
            "block-causal target is exact and needs no refresh; valid: 0"
        )


def decode(decoder: Decoder, requests: Iterable[Request], batch_size: int) -> Iterator[Result]:
    """Decode requests, ``batch_size`` at a time, as they finish; a leaver makes room for the next.

    When the caller stops early or a forward fails, the batch's prefixes are freed.
    """
    waiting = iter(requests)
    try:
        for request in islice(waiting, batch_size):
            decoder.add(request)
        while decoder.active:
            for result in decoder.step():
                for request in islice(waiting, 1):
                    decoder.add(request)
                yield result
    finally:
        for request_id in list(decoder.active):
            decoder.remove(request_id)
