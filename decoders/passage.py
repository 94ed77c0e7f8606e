"""What a forward came to for one request: how far the target went through its copies."""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass

from torch import Tensor

from decoders.acceptance import max_commit
from decoders.boundary import Leg, Opening, Told
from decoders.copies import Copies
from decoders.judge import Judged, judge
from decoders.proposers.base import Place
from decoders.request import TokenLogprob
from decoders.rules import Step
from decoders.sequence import Sequence
from decoders.state import State, fill
from decoders.walk import walk


@dataclass(frozen=True)
class Passage:
    """``legs``: in the active block, then, where the walk went on behind a full state, in the next
    one; the target was offered that state as its ``adopted``-th copy."""

    legs: tuple[Leg, ...]
    adopted: int | None = None

    @property
    def accepted(self) -> int:
        """Drafts that the target made a step from; the masked copy behind a full one is one."""
        return sum(len(leg.steps) for leg in self.legs) - 1

    def reached(self, root: State, blank: State) -> set[Place]:
        """The places that the target came to from ``root``."""
        here, *ahead = self.legs
        states = here.reached(root)
        found: set[Place] = {(None, state) for state in states}
        for leg in ahead:
            found |= {(states[-1], state) for state in (blank, *leg.reached(blank))}
        return found


@dataclass(frozen=True)
class Judgement:
    """One request's copies of a forward, judged block by block."""

    sequence: Sequence
    part: Copies
    here: Judged
    ahead: Judged | None
    """Where copies of the next block rode along."""
    ends: tuple[State, ...] = ()
    """Drafts that end the block or the text and had no copy: lossy rules alone may accept them."""

    def openings(self) -> dict[State, Opening]:
        """What was said of the next block behind each full state of this forward."""
        return {full: self._opening(full) for full in self.part.full}

    def _opening(self, full: State) -> Opening:
        known = self.sequence.openings.get(full)
        if known is not None:
            return known
        assert self.ahead is not None
        first = self._behind(full)[0]
        step = self.ahead.step(first)
        return Opening(step, self.ahead.stale_later(first), self.ahead.told(first, step))

    def _behind(self, full: State) -> list[int]:
        """The copies of the next block behind ``full``; the first state comes first."""
        return [i for i, (parent, _) in enumerate(self.part.ahead) if parent == full]

    def passage(self, keeps: bool) -> Passage:
        """Walk through the active block's copies and, behind a full state, through the next
        block's; ``keeps``: what is said of the last states may be read later."""
        sequence, part, end = self.sequence, self.part, self.sequence.end
        states, options = (part.root, *part.drafts), sequence.request.options
        copy_of = {state: copy for copy, state in enumerate(states)}
        if options.lossless:
            walked = walk(part.root, copy_of, self.here.step, end.finished)
        else:
            ends = (*part.full, *self.ends)
            rule = options.tau, options.rule, end.mask_id
            walked = max_commit(states, ends, self.here.rows, *rule)
        later = self.here.stale_later(walked.last) if keeps else None
        told = told_on_the_way(self.here, part.root, walked.steps, copy_of)
        first = Leg(walked.steps, states[walked.last], later, told)
        if end.mask_id in walked.state or end.text_ended(walked.state):
            return Passage((first,))
        if walked.state in part.full:
            second = self._leg_ahead(walked.state)
            return Passage((first, second), part.full.index(walked.state))
        if walked.state in sequence.openings and not part.full:
            kept = sequence.openings[walked.state]
            second = Leg((kept.step,), sequence.blank, kept.stale, kept.told)
            return Passage((first, second), list(sequence.openings).index(walked.state))
        return Passage((first,))

    def _leg_ahead(self, full: State) -> Leg:
        """The walk through the next block's copies behind an accepted full draft."""
        assert self.ahead is not None
        behind = self._behind(full)
        states = [state for _, state in self.part.ahead]
        copy_of = {states[copy]: copy for copy in behind}
        finished = self.sequence.end_of(self.sequence.next_start).finished
        walked = walk(states[behind[0]], copy_of, self.ahead.step, finished, behind[0])
        known = self.sequence.openings.get(full)
        told = told_on_the_way(self.ahead, states[behind[0]], walked.steps, copy_of)
        steps = (known.step, *walked.steps) if known else walked.steps
        told = {**known.told, **told} if known else told
        return Leg(steps, states[walked.last], self.ahead.stale_later(walked.last), told)


def told_on_the_way(
    judged: Judged, state: State, steps: Seq[Step], copy_of: Mapping[State, int]
) -> Told:
    """What the target said, at the copies that ``steps`` were made from, of their tokens."""
    told: dict[int, TokenLogprob] = {}
    if judged.sequence.request.top_logprobs is None:
        return told
    for step in steps:
        told |= judged.told(copy_of[state], step)
        state = fill(state, step)
    return told


def judge_part(
    sequence: Sequence,
    part: Copies,
    logits_RV: Tensor,
    hidden_RH: Tensor | None = None,
    ends: tuple[State, ...] = (),
) -> Judgement:
    """Judge one request's rows of a forward; on a GPU this only begins."""
    here = (part.root, *part.drafts)
    ahead = [state for _, state in part.ahead]
    num_rows = sum(len(sequence.asked(state)) for state in here)
    logits = logits_RV[:num_rows], logits_RV[num_rows:]
    hidden = (None, None) if hidden_RH is None else (hidden_RH[:num_rows], hidden_RH[num_rows:])
    return Judgement(
        sequence,
        part,
        judge(sequence, sequence.block_start, here, logits[0], hidden[0]),
        judge(sequence, sequence.next_start, ahead, logits[1], hidden[1]) if ahead else None,
        ends,
    )
