"""From the target's logits in the slots to the steps of one round."""

from dataclasses import dataclass

import torch
from torch import Tensor

from decoders.judge import judge
from decoders.noise import gumbel_table, row_seed
from decoders.rules import Step
from decoders.sampling import filtered_scores, suppress_mask_token
from decoders.sequence import Sequence
from decoders.simsd.acceptance import (
    acceptance_order,
    accepted_count,
    accepts_by_chance,
    accepts_greedily,
    residual_token,
    uniform_of,
)
from decoders.simsd.draft import BlockDraft
from decoders.state import State, fill


@dataclass(frozen=True)
class Verdict:
    """``tested`` drafts were looked at, the first ``accepted`` of them taken over; ``steps`` hold
    these, the target's own token for the one that was rejected, and what became of the rest."""

    tested: int
    accepted: int
    steps: tuple[Step, ...]


def reach(sequence: Sequence, draft: BlockDraft, logits_RV: Tensor) -> Verdict:
    """Accept and correct one draft. ``logits_RV`` are those of the drafted positions' slots in
    drafting order, then those of the positions that stayed open, ascending."""
    logits_RV = suppress_mask_token(logits_RV, sequence.spec.mask_token_id)
    count, options = len(draft.positions), sequence.request.options
    drafted, remaining = logits_RV[:count], logits_RV[count:]
    order = acceptance_order(draft.positions, options.order)
    test = _greedy if options.temperature == 0 else _Rejection(sequence, draft, drafted)
    best = drafted.argmax(dim=1).tolist()
    accepted, correction = test(draft, best, order)
    steps: list[Step] = [((draft.positions[i], draft.tokens[i]),) for i in order[:accepted]]
    if accepted == count:
        state = fill(sequence.state, tuple(draft.fills.items()))
        own = (
            judge(sequence, sequence.block_start, (state,), remaining).step(0)
            if len(remaining)
            else ()
        )
        return Verdict(count, accepted, (*steps, own) if own else tuple(steps))
    steps.append(((draft.positions[order[accepted]], correction),))
    rest = _rest(draft, best, order[accepted + 1 :], options.rest)
    return Verdict(accepted + 1, accepted, (*steps, rest) if rest else tuple(steps))


def _greedy(draft: BlockDraft, best: list[int], order: list[int]) -> tuple[int, int]:
    """How many are accepted, and the token in the place of the next one."""
    accepted = accepted_count(order, accepts_greedily(draft.tokens, best))
    return accepted, best[order[accepted]] if accepted < len(order) else -1


class _Rejection:
    """Rejection sampling under the request's temperature and filters.

    Each position is tested at most once, since what is tested is committed, one way or the other:
    so noise of (seed, position) is fresh wherever it decides. Acceptance and correction have
    streams of their own, apart from the one that drafts are drawn with.
    """

    def __init__(self, sequence: Sequence, draft: BlockDraft, logits_GV: Tensor) -> None:
        options, self.sequence = sequence.request.options, sequence
        sampling = (options.temperature, options.top_k, options.top_p)
        self.log_q_GV = filtered_scores(logits_GV, *sampling)
        tokens = torch.tensor(draft.tokens, device=logits_GV.device)
        self.log_q = self.log_q_GV.gather(1, tokens[:, None]).squeeze(1).tolist()

    def __call__(self, draft: BlockDraft, best: list[int], order: list[int]) -> tuple[int, int]:
        chances = uniform_of(self._noise("accept", 1)[:, 0])
        uniform = [chances[position] for position in draft.positions]
        accepts = accepts_by_chance(self.log_q, draft.log_probs, uniform)
        accepted = accepted_count(order, accepts)
        if accepted == len(order):
            return accepted, -1
        index = order[accepted]
        log_q, vocab = self.log_q_GV[index], self.sequence.spec.vocab_size
        noise = self._noise("correct", vocab)[draft.positions[index]]
        log_p = draft.distribution(index).to(log_q.device)
        return accepted, residual_token(log_q, log_p, noise)

    def _noise(self, stream: str, width: int) -> Tensor:
        seed = row_seed(self.sequence.request.noise_seed, f"simsd {stream}")
        size = (self.sequence.block_start, self.sequence.spec.block_size, width)
        return gumbel_table(seed, *size, self.log_q_GV.device)


def _rest(draft: BlockDraft, best: list[int], behind: list[int], rest: str) -> Step:
    """What is done at once with the drafted positions behind the rejected one."""
    if rest == "redraft":
        return ()
    tokens = best if rest == "target-argmax" else draft.best
    return tuple(sorted((draft.positions[i], tokens[i]) for i in behind))


def steps_taken(sequence: Sequence, verdict: Verdict) -> tuple[tuple[Step, ...], State]:
    """The steps up to the one that ends the text, and the state that the last one is made from."""
    state, before, taken = sequence.state, sequence.state, []
    for step in verdict.steps:
        before, state = state, fill(state, step)
        taken.append(step)
        if sequence.end.finished(state):
            break
    return tuple(taken), before
