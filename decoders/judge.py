"""Reading a forward's logits: tokens, confidences and steps of every copy of one request."""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from decoders.rules import Floats, Ints, Step, commit_step
from decoders.sampling import log_odds, perturbed_scores, suppress_mask_token
from decoders.sequence import Sequence
from decoders.stale import Stale, summarize
from decoders.state import State, masked_positions


@dataclass(frozen=True)
class Judged:
    """One request's rows of a forward; row slices of copy c are ``bounds[c]:bounds[c + 1]``."""

    sequence: Sequence
    bounds: tuple[int, ...]
    positions: Ints
    tokens: Ints
    rank_log_odds: Floats
    logits_RV: Tensor
    scores_RV: Tensor

    def step(self, copy: int) -> Step:
        """The step that the target takes from copy ``copy`` (0 is the root)."""
        rows = slice(self.bounds[copy], self.bounds[copy + 1])
        return commit_step(
            self.positions[rows],
            self.tokens[rows],
            self.rank_log_odds[rows],
            self.sequence.request.options,
        )

    def stale(self, copy: int) -> Stale:
        """The distribution of copy ``copy``, to draft from in the next round."""
        rows = slice(self.bounds[copy], self.bounds[copy + 1])
        logits = self.logits_RV[rows]
        scores = logits if self.scores_RV is self.logits_RV else self.scores_RV[rows]
        top1 = log_odds(logits, logits.argmax(dim=1)).cpu().numpy()
        return summarize(self.positions[rows], logits, scores, top1, self.rank_log_odds[rows])


def judge(sequence: Sequence, states: Seq[State], logits_RV: Tensor) -> Judged:
    """Draw the token and its confidence at every masked position of ``states``."""
    options, spec = sequence.request.options, sequence.spec
    masked = [masked_positions(state, spec.mask_token_id) for state in states]
    positions = np.concatenate([np.asarray(m, dtype=np.int64) for m in masked])
    logits_RV = suppress_mask_token(logits_RV, spec.mask_token_id)
    if sequence.block_start == 0 and len(masked[0]) == spec.block_size:
        # An empty prompt: nothing but masks is seen, so all rows are equal, and rounding, which
        # differs between devices, must not choose among them.
        logits_RV[1:] = logits_RV[0]
    gumbel = None
    if options.temperature > 0:
        gumbel = sequence.gumbel(logits_RV.device)[torch.from_numpy(positions)]
    scores = perturbed_scores(logits_RV, gumbel, options.temperature, options.top_k, options.top_p)
    tokens = scores.argmax(dim=1)
    ranked = tokens if options.confidence == "chosen" else logits_RV.argmax(dim=1)
    return Judged(
        sequence=sequence,
        bounds=(0, *np.cumsum([len(m) for m in masked]).tolist()),
        positions=positions,
        tokens=tokens.cpu().numpy(),
        rank_log_odds=log_odds(logits_RV, ranked).cpu().numpy(),
        logits_RV=logits_RV,
        scores_RV=scores,
    )
