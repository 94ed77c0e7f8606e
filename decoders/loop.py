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
from decoders.boundary import check_boundary
from decoders.companion import Companion, MaskedForwarder
from decoders.copies import Copies, copy_batch
from decoders.cost_curve import measure_cost_curve
from decoders.drafting import Proposal, propose, view_of
from decoders.passage import Judgement, Passage, judge_part
from decoders.proposers.base import Place, Proposer, View
from decoders.request import Request, Result, Round
from decoders.rules import Step
from decoders.sequence import Sequence
from decoders.stale import Stale
from decoders.state import State
from models.spec import TargetSpec
from models.target import CopyBatch


class Forwarder(Protocol):
    """What the loop needs of a target, on one rank or on several."""

    spec: TargetSpec

    @property
    def placement(self) -> tuple[str, ...]: ...
    def open_slot(self, slot: int, length: int = 0, refresh: int = 0) -> None: ...
    def close_slot(self, slot: int) -> None: ...
    def prefill(self, slot: int, tokens: "tuple[int, ...]") -> None: ...
    def forward(self, batch: CopyBatch) -> Tensor: ...
    def forward_with_hidden(self, batch: CopyBatch) -> tuple[Tensor, Tensor]: ...
    def adopt(self, slot: int, index: int) -> None: ...


class Observer(Protocol):
    """Sees every round, block by block: the last accepted state, what the target said of it, its
    step there."""

    def observe(self, sequence: Sequence, state: State, stale: Stale, step: Step) -> None: ...


class Decoder:
    """Decodes requests on one target; ``proposers`` maps a method's name to its proposer."""

    def __init__(
        self,
        target: Forwarder,
        proposers: Mapping[str, Proposer | Companion],
        observer: Observer | None = None,
        slots: Iterator[int] | None = None,
        auto: AutoBudget | None = None,
        hidden: bool = False,
    ) -> None:
        """``slots`` are free slot numbers, ``auto`` is what was learnt for ``budget: auto``:
        batches that share a target share both. With ``hidden`` the observer is shown the target's
        hidden states, whether a drafter reads them or not."""
        self.target = target
        self.proposers = proposers
        self.observer = observer
        self.hidden = hidden
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
        slot = self.active.pop(request_id).slot
        self.target.close_slot(slot)
        for proposer in self.proposers.values():
            if isinstance(proposer, Companion):
                proposer.leave(slot)

    @torch.inference_mode()
    def step(self) -> list[Result]:
        """One forward for every active request; returns those that it finished."""
        done = [s for s in self.active.values() if s.request.options.max_new_tokens == 0]
        running = [s for s in self.active.values() if s not in done]
        for sequence in running:
            self._prefill(sequence)
        masked = [sequence for sequence in running if sequence.request.options.masked]
        stepping = [sequence for sequence in running if sequence not in masked]
        if masked:
            done += self._masked_round(masked)
        if stepping:
            done += self._round(stepping)
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

    def _masked_round(self, sequences: list[Sequence]) -> list[Sequence]:
        """Leave the round to the method that verifies under a mask of its own."""
        companion, target = self.proposers[sequences[0].request.options.method], self.target
        assert isinstance(companion, Companion)
        assert isinstance(target, MaskedForwarder), "refused when the drafter was opened"
        return companion.round(target, sequences)

    def _round(self, sequences: list[Sequence]) -> list[Sequence]:
        proposals = self._propose(sequences, self._drafting(sequences))
        places = self._followed(sequences)
        started = perf_counter()
        self._allot(sequences, proposals, sum(map(len, places.values())))
        places |= {index: each.places for index, each in proposals.items()}
        parts = [s.copies(places.get(index, [])) for index, s in enumerate(sequences)]
        slots = [sequence.slot for sequence in sequences]
        batch, num_rows = copy_batch(slots, parts, self.target.spec.mask_token_id)
        prefix = mean_prefix(sequences)
        rows = self._forward(sequences, batch, num_rows)
        autos = [is_auto(sequence) for sequence in sequences]
        done = []
        # All are begun before the first is read, so that a GPU is waited for once.
        judged = [
            judge_part(sequence, part, *own, ends=proposals[i].ends if i in proposals else ())
            for i, (sequence, part, own) in enumerate(zip(sequences, parts, rows, strict=True))
        ]
        for index, (sequence, part, told) in enumerate(zip(sequences, parts, judged, strict=True)):
            passage, finished = self._commit(sequence, part, told)
            if finished:
                done.append(sequence)
            if autos[index] and index in proposals:
                reached = passage.reached(part.root, sequence.blank)
                self.auto.observe(proposals[index].view, proposals[index].drafts, reached)
        if any(autos):
            seconds, copies = perf_counter() - started, len(batch.slots)
            drafted = (part.num_drafts for part, auto in zip(parts, autos, strict=True) if auto)
            plain = copies - sum(drafted)
            self.auto.forwarded(seconds, len(sequences), plain, copies, prefix)
        return done

    def _forward(
        self, sequences: list[Sequence], batch: CopyBatch, num_rows: list[int]
    ) -> list[tuple[Tensor, Tensor | None]]:
        """Each sequence's logits, and its rows' hidden states where somebody reads them."""
        if self.hidden or any(s.request.options.reads_hidden for s in sequences):
            logits_RV, hidden_RH = self.target.forward_with_hidden(batch)
            return list(zip(logits_RV.split(num_rows), hidden_RH.split(num_rows), strict=True))
        return [(logits, None) for logits in self.target.forward(batch).split(num_rows)]

    def _drafting(self, sequences: list[Sequence]) -> list[bool]:
        """Which sequences draft in this round."""
        able = [
            sequence.request.options.drafts
            and sequence.stale is not None
            and sequence.request.options.method in self.proposers
            and not isinstance(self.proposers[sequence.request.options.method], Companion)
            for sequence in sequences
        ]
        asking = [s for s, drafts in zip(sequences, able, strict=True) if drafts and is_auto(s)]
        admitted = self.auto.admitted(sequence.kind for sequence in asking)
        return [
            drafts and (not is_auto(s) or admitted[s.kind])
            for s, drafts in zip(sequences, able, strict=True)
        ]

    def _propose(self, sequences: list[Sequence], drafting: list[bool]) -> dict[int, Proposal]:
        """What is proposed for every drafting sequence, by its number."""
        proposals: dict[int, Proposal] = {}
        for method, proposer in self.proposers.items():
            asking = [
                index
                for index, sequence in enumerate(sequences)
                if drafting[index] and sequence.request.options.method == method
            ]
            if not asking or isinstance(proposer, Companion):
                continue
            started = perf_counter()
            shown = [self._view(sequences[index], sequences) for index in asking]
            found = propose(proposer, [sequences[index] for index in asking], shown)
            seconds = (perf_counter() - started) / len(asking)
            proposals |= zip(asking, found, strict=True)
            asked = {
                sequences[index].kind: sequences[index].request.options
                for index in asking
                if is_auto(sequences[index])
            }
            for options in asked.values():
                self.auto.proposed(options, seconds)
        return proposals

    def _followed(self, sequences: list[Sequence]) -> dict[int, list[Place]]:
        """What companions draft, by the sequence's number; they need no stale distribution."""
        found: dict[int, list[Place]] = {}
        for method, companion in self.proposers.items():
            asking = [i for i, s in enumerate(sequences) if s.request.options.method == method]
            if asking and isinstance(companion, Companion):
                drafted = companion.states([sequences[index] for index in asking])
                found |= zip(asking, drafted, strict=True)
        return found

    def _view(self, sequence: Sequence, beside: list[Sequence]) -> View:
        view = view_of(sequence)
        if not is_auto(sequence):
            return view
        return self.auto.limited(view, len(beside), mean_prefix(beside))

    def _allot(
        self, sequences: list[Sequence], proposals: dict[int, Proposal], followed: int
    ) -> None:
        """Cut the drafts of ``auto`` requests to what the forward is worth, beside the copies that
        companions have drafted."""
        shared = {i: each for i, each in proposals.items() if is_auto(sequences[i])}
        if not shared:
            return
        fixed = followed
        fixed += sum(len(each.places) for i, each in proposals.items() if i not in shared)
        fixed += sum(len(each.refresh) for each in shared.values())
        stored = sum(sequence.unstored is not None for sequence in sequences)
        chosen = self.auto.choose(
            [each.view for each in shared.values()],
            [each.drafts for each in shared.values()],
            requests=len(sequences),
            copies=len(sequences) + stored + fixed,
            prefix=mean_prefix(sequences),
        )
        for (index, each), found in zip(shared.items(), chosen, strict=True):
            proposals[index] = each._replace(drafts=found)

    def _commit(self, sequence: Sequence, part: Copies, judged: Judgement) -> tuple[Passage, bool]:
        """Commit what a forward said; returns it, and whether the text is complete."""
        options = sequence.request.options
        # Read only when a proposer asks: in a round without drafts it would be paid for nothing.
        passage = judged.passage(keeps=options.drafts or self.observer is not None)
        if options.draft_refresh and part.full:
            sequence.openings = judged.openings()
        steps: tuple[Step, ...] = ()
        finished = False
        for leg in passage.legs:
            if self.observer is not None:
                assert leg.stale is not None
                self.observer.observe(sequence, leg.last, leg.stale(), leg.steps[-1])
            placed, finished = sequence.advance(leg, leg is not passage.legs[-1])
            steps += placed
        if passage.adopted is not None:
            self.target.adopt(sequence.slot, passage.adopted)
        sequence.rounds.append(Round(part.kind, part.num_drafts, passage.accepted, steps))
        return passage, finished


def is_auto(sequence: Sequence) -> bool:
    """Whether its budget is decided in every round."""
    options = sequence.request.options
    return options.drafts and options.budget == "auto"


def mean_prefix(sequences: list[Sequence]) -> float:
    """Tokens before the active blocks, in the mean."""
    return sum(sequence.block_start for sequence in sequences) / len(sequences)


def check_request(request: Request, spec: TargetSpec) -> None:
    """Raise ``ValueError`` for a prompt that this target cannot take."""
    for token in request.prompt_ids:
        if not 0 <= token < spec.vocab_size or token == spec.mask_token_id:
            raise ValueError(
                f"prompt_ids of {request.id}: {token} is not a text token of this target "
                f"(0..{spec.vocab_size - 1} without the mask id {spec.mask_token_id})"
            )
    check_boundary(request.options, spec)
    options = request.options
    if options.method == "simsd" and options.gamma > spec.block_size:
        raise ValueError(
            f"decode.gamma {options.gamma:g}: this target's blocks have {spec.block_size} "
            "positions (0 drafts the whole block)"
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
