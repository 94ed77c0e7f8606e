"""The one loop of every state-based method, for a batch of requests in one forward.

Each call of :meth:`Decoder.step` is one round: draft, one target forward over every request's root
and drafts, walk, commit. Requests join and leave between rounds; none depends on its neighbours.
"""

from collections.abc import Iterable, Iterator
from itertools import count, islice
from time import perf_counter
from typing import Protocol

import torch
from torch import Tensor

from decoders.auto_budget import AutoBudget
from decoders.batch_drafting import BatchDrafting, Proposers, is_auto, mean_prefix
from decoders.cache_memory import CacheMemory
from decoders.companion import Companion, MaskedForwarder
from decoders.copies import Copies, copy_batch
from decoders.cost_curve import measure_cost_curve
from decoders.forwarder import Forwarder
from decoders.options import DRAFT_FREE
from decoders.passage import Judgement, Passage, judge_part
from decoders.prefilling import Prefilling
from decoders.proposers.base import Draft
from decoders.refusals import check_request
from decoders.request import Request, Result, Round
from decoders.rules import Step
from decoders.sequence import Sequence
from decoders.stale import Stale
from decoders.state import State
from decoders.watching import look
from models.target import CopyBatch


class Observer(Protocol):
    """Sees every round, block by block: the last accepted state, what the target said of it, its
    step there."""

    def observe(self, sequence: Sequence, state: State, stale: Stale, step: Step) -> None: ...


class Decoder:
    """Decodes requests on one target; ``proposers`` maps a method's name to its proposer."""

    def __init__(
        self,
        target: Forwarder,
        proposers: Proposers,
        observer: Observer | None = None,
        slots: Iterator[int] | None = None,
        auto: AutoBudget | None = None,
        hidden: bool = False,
        memory: CacheMemory | None = None,
    ) -> None:
        """``slots`` are free slot numbers, ``auto`` is what was learnt for ``budget: auto``:
        batches that share a target share both. With ``hidden`` the observer is shown the target's
        hidden states, whether a drafter reads them or not. With a ``memory`` requests begin with
        what is kept of earlier ones, and who adds them minds what it has room for."""
        self.target = target
        self.proposers = proposers
        self.observer = observer
        self.hidden = hidden
        self.memory = memory
        self.active: dict[str, Sequence] = {}
        self._slots = count() if slots is None else slots
        self.auto = auto or AutoBudget(lambda anew: measure_cost_curve(target, next(self._slots)))
        self.drafting = BatchDrafting(proposers, self.auto)
        self.prefilling = Prefilling(target, memory)

    def add(self, request: Request) -> Sequence:
        """Let a request join the batch; raises ``ValueError`` for one that cannot be decoded."""
        sequence = self.prepare(request)
        self.join(sequence)
        return sequence

    def prepare(self, request: Request) -> Sequence:
        """A request that may join; raises ``ValueError`` for one that cannot be decoded."""
        check_request(request, self.target.spec)
        if request.options.drafts and request.options.method not in self.proposers:
            loaded = ", ".join((*DRAFT_FREE, *self.proposers))
            raise ValueError(
                f"decode.method {request.options.method}: its drafter is not loaded; valid here: "
                f"{loaded}"
            )
        sequence = Sequence(request, next(self._slots), self.target.spec)
        if self.memory is not None:
            self.memory.check(sequence)
        return sequence

    def join(self, sequence: Sequence) -> None:
        """Let a prepared request join the batch, or a parked one go on where it was."""
        request = sequence.request
        if request.id in self.active:
            raise ValueError(f"id {request.id!r} is already being decoded")
        # Where memory is short, a prefix grows with its text.
        length = sequence.whole_length if self.memory is None else 0
        self.target.open_slot(sequence.slot, length, request.options.cache_refresh)
        if not sequence.rounds:
            sequence.started = perf_counter()
        self.active[request.id] = sequence

    def park(self, request_id: str) -> Sequence:
        """Take a request out of the batch and free its prefix; it may join again, and its output
        will be the same."""
        sequence = self.active[request_id]
        self.prefilling.keep(sequence)
        self.remove(request_id)
        sequence.park()
        return sequence

    def remove(self, request_id: str) -> None:
        """Drop a request (finished or cancelled) and free its prefix."""
        slot = self.active.pop(request_id).slot
        self.target.close_slot(slot)
        if self.memory is not None:
            self.memory.release(slot)
        for companion in self.drafting.companions:
            companion.leave(slot)

    @torch.inference_mode()
    def step(self) -> list[Result]:
        """One forward for every active request; returns those that it finished."""
        if self.memory is not None:
            self.memory.claim(list(self.active.values()))
        done = [s for s in self.active.values() if s.request.options.max_new_tokens == 0]
        ready = self.prefilling.ready([s for s in self.active.values() if s not in done])
        masked = [sequence for sequence in ready if sequence.request.options.masked]
        stepping = [sequence for sequence in ready if sequence not in masked]
        if masked:
            done += self._masked_round(masked)
        if stepping:
            done += self._round(stepping)
        for sequence in done:
            self.prefilling.keep(sequence)
            self.remove(sequence.request.id)
        return [sequence.result() for sequence in done]

    def _masked_round(self, sequences: list[Sequence]) -> list[Sequence]:
        """Leave the round to the method that verifies under a mask of its own."""
        companion, target = self.proposers[sequences[0].request.options.method], self.target
        assert isinstance(companion, Companion)
        assert isinstance(target, MaskedForwarder), "refused when the drafter was opened"
        return companion.round(target, sequences)

    def _round(self, sequences: list[Sequence]) -> list[Sequence]:
        proposals = self.drafting.propose(sequences)
        places = self.drafting.follow(sequences)
        started = perf_counter()
        self.drafting.allot(sequences, proposals, sum(map(len, places.values())))
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
            drafts = proposals[index].drafts if index in proposals else []
            passage, finished = self._commit(sequence, part, told, drafts)
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

    def _commit(
        self, sequence: Sequence, part: Copies, judged: Judgement, drafts: list[Draft]
    ) -> tuple[Passage, bool]:
        """Commit what a forward said; returns it, and whether the text is complete."""
        options = sequence.request.options
        # Read only when a proposer asks: in a round without drafts it would be paid for nothing.
        passage = judged.passage(keeps=options.drafts or self.observer is not None)
        if sequence.sights is not None:
            sequence.sights[len(sequence.rounds)] = look(judged, passage, drafts)
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
            decoder.auto.check_curve()
    finally:
        for request_id in list(decoder.active):
            decoder.remove(request_id)
