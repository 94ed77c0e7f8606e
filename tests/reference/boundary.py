"""Chains that cross blocks, with refreshes, by their definition: every distribution is asked for by
a forward of its own over everything before it; nothing is batched, kept, offered or adopted.

What is drafted, and so what each forward carries and how far it gets, follows in plain lists.
"""

from collections.abc import Callable
from dataclasses import dataclass

from decoders.options import DecodeOptions
from decoders.proposers.base import View
from decoders.proposers.chain import chain
from decoders.request import Request, Round
from decoders.rules import Step
from decoders.stale import Stale
from decoders.state import BlockEnd, State, fill
from models.spec import TargetSpec

Ask = Callable[[tuple[int, ...], State], tuple[Stale, Step]]
"""What the target says of a block behind whole blocks of known tokens, and its step there."""


@dataclass
class Run:
    """One request; ``known`` tokens lie before the active block."""

    request: Request
    spec: TargetSpec
    ask: Ask
    known: tuple[int, ...]
    state: State
    stale: Stale | None = None
    ahead: tuple[State, Stale] | None = None
    """Behind which fill of the active block the next one was last looked at, and what was seen."""
    fresh: bool = False
    """Whether the block before the active one is yet to be stored."""

    @property
    def options(self) -> DecodeOptions:
        return self.request.options

    def end(self, known: tuple[int, ...]) -> BlockEnd:
        prompt, limit = len(self.request.prompt_ids), self.options.max_new_tokens
        stops = () if self.options.ignore_stop else self.spec.stop_token_ids
        before = len(known)
        return BlockEnd(self.spec.mask_token_id, prompt - before, prompt + limit - before, stops)

    def masks(self) -> State:
        return (self.spec.mask_token_id,) * self.spec.block_size

    def likeliest(self) -> State:
        assert self.stale is not None
        commits = zip(self.stale.positions, self.stale.candidates[:, 0], strict=True)
        mask = self.spec.mask_token_id
        return fill(self.state, tuple((p, t) for p, t in commits if self.state[p] == mask))

    def drafts(self) -> tuple[list[State], State | None, list[State]]:
        """Unfinished drafts of the active block, the full one that carries the next block, and the
        next block's states behind it."""
        options, mask = self.options, self.spec.mask_token_id
        budget, full = options.budget, self.likeliest()
        assert self.stale is not None
        assert budget != "auto"
        end = self.end(self.known)
        found = chain(View(self.state, self.stale, options, end))
        may_cross = not self.fresh and not end.text_ended(full)
        seen = self.ahead is not None and self.ahead[0] == full
        first = self.masks()
        if seen:
            first = fill(first, self.ask((*self.known, *full), first)[1])
        behind = self.end((*self.known, *full))
        needed = self.state.count(mask) - 1
        crosses = (
            options.cross_block
            and may_cross
            and len(found) == needed
            and needed + 2 <= budget
            and not behind.finished(first)
        )
        states = [draft.state for draft in found]
        if crosses:
            next_states = [first]
            if self.ahead is not None and budget > needed + 2:
                stale = self.ahead[1]
                more = options.model_copy(update={"budget": budget - needed - 2})
                next_states += [d.state for d in chain(View(first, stale, more, behind))]
            return states, full, next_states
        due = self.state.count(mask) <= options.draft_refresh and not seen
        if due and may_cross and budget >= 2:
            return states[: budget - 2], full, [self.masks()]
        return states, None, []

    def round(self) -> tuple[Round, bool]:
        """One forward: what it carries, how far it gets, and whether the text is complete."""
        opens = self.stale is None
        inside, full, behind = ([], None, []) if opens else self.drafts()
        count = len(inside) + (full is not None) + len(behind)
        steps: list[Step] = []
        first_known = self.known
        while True:
            self.stale, step = self.ask(self.known, self.state)
            steps.append(tuple((len(self.known) + p, t) for p, t in step))
            self.state = fill(self.state, step)
            if self.known == first_known:
                self.fresh = False
            if self.end(self.known).text_ended(self.state):
                ended = True
                break
            if self.spec.mask_token_id in self.state:
                ended = False
                if self.state in (inside if self.known == first_known else behind):
                    continue
                break
            ended = False
            closed = self.state
            crossing = self.known == first_known and (
                closed == full or (full is None and self.ahead and self.ahead[0] == closed)
            )
            old, self.known, self.state = self.ahead, (*self.known, *closed), self.masks()
            if not crossing:
                self.stale = self._nearest(closed, full, first_known)
                self.ahead, self.fresh = None, True
                return self._round(count, opens, steps), False
            self.ahead = None
            if old is not None and old[0] == closed:
                # The step from the masked block was known before this forward.
                self.stale, step = self.ask(self.known, self.state)
                steps.append(tuple((len(self.known) + p, t) for p, t in step))
                self.state = fill(self.state, step)
                if self.end(self.known).text_ended(self.state):
                    return self._round(count, opens, steps), True
                if self.state not in behind:
                    return self._round(count, opens, steps), False
        if self.known == first_known and full is not None and self.options.draft_refresh:
            self.ahead = full, self.ask((*self.known, *full), self.masks())[0]
        return self._round(count, opens, steps), ended

    def _nearest(self, closed: State, full: State | None, before: tuple[int, ...]) -> Stale | None:
        """What the next block's first drafts are made from: the last look at it."""
        if full is not None and self.options.draft_refresh:
            return self.ask((*before, *full), self.masks())[0]
        return self.ahead[1] if self.ahead is not None else None

    def _round(self, count: int, opens: bool, steps: list[Step]) -> Round:
        kind = "verify" if count else "open" if opens else "step"
        return Round(kind, count, len(steps) - 1, tuple(steps))


def naive_rounds(request: Request, spec: TargetSpec, ask: Ask) -> list[Round]:
    """The forwards of a ``chain`` request, prefill left out."""
    block, prompt = spec.block_size, request.prompt_ids
    aligned = len(prompt) // block * block
    tail = prompt[aligned:]
    masks = (spec.mask_token_id,) * (block - len(tail))
    run = Run(request, spec, ask, prompt[:aligned], (*tail, *masks))
    rounds: list[Round] = []
    ended = False
    while not ended:
        found, ended = run.round()
        rounds.append(found)
    return rounds
