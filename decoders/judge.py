"""Reading a forward's logits: tokens, confidences and steps of every copy of one request."""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from decoders.acceptance import Rows
from decoders.logprobs import read_logprobs
from decoders.request import Request, TokenLogprob
from decoders.rules import Floats, Ints, Step, commit_step, editing_step
from decoders.sampling import (
    filtered_scores,
    log_odds,
    perturbed_scores,
    suppress_mask_token,
)
from decoders.stale import Stale, summarize_later
from decoders.state import State
from models.spec import TargetSpec
from models.transfer import Arrays, fetch_later, to_device


class Drawing(Protocol):
    """Whose blocks are drawn: a sequence, or a block that a small model drafts."""

    request: Request
    spec: TargetSpec

    def asked(self, state: State) -> tuple[int, ...]: ...
    def gumbel(self, start: int, state: State, device: torch.device) -> Tensor: ...


class BrokenLogits(RuntimeError):
    """The logits are no numbers: whatever would be committed from them means nothing."""


@dataclass(frozen=True)
class Judged:
    """One request's rows of a forward; row slices of copy c are ``bounds[c]:bounds[c + 1]``.

    ``scores_RV`` order the tokens that a later draw may take: logits at T=0, filtered
    log-probabilities at T>0, with the noise where drafts share it. ``hidden_RH`` are there where
    a drafter reads hidden states.
    """

    sequence: Drawing
    bounds: tuple[int, ...]
    states: tuple[State, ...]
    positions: Ints
    read: Callable[[], Arrays]
    """The tokens and what the commit rule ranks by; waits for the device."""
    logits_RV: Tensor
    scores_RV: Tensor
    hidden_RH: Tensor | None = None

    @cached_property
    def _told(self) -> Arrays:
        told = self.read()
        broken = np.isnan(told[1])  # as is all that follows from a row with one NaN
        if broken.any():
            raise BrokenLogits(
                f"request {self.sequence.request.id!r}: the logits at position "
                f"{self.positions[broken][0]} of its block are NaN: broken weights, or values "
                "beyond the range of target.dtype"
            )
        return told

    @property
    def tokens(self) -> Ints:
        return self._told[0]

    @property
    def rank_log_odds(self) -> Floats:
        return self._told[1]

    def step(self, copy: int) -> Step:
        """The step that the target takes from copy ``copy`` (0 is the root)."""
        rows = slice(self.bounds[copy], self.bounds[copy + 1])
        options, positions = self.sequence.request.options, self.positions[rows]
        found = positions, self.tokens[rows], self.rank_log_odds[rows]
        if options.edits:
            current = np.array(self.states[copy])[positions]
            return editing_step(*found, current, self.sequence.spec.mask_token_id, options)
        return commit_step(*found, options)

    def told(self, copy: int, step: Step) -> dict[int, TokenLogprob]:
        """What the target said of the tokens of ``step``, committed from copy ``copy``, by their
        positions; nothing where the request does not ask."""
        most = self.sequence.request.top_logprobs
        if most is None or not step:
            return {}
        first, last = self.bounds[copy], self.bounds[copy + 1]
        row_of = {int(at): first + row for row, at in enumerate(self.positions[first:last])}
        rows = [row_of[position] for position, _ in step]
        said = read_logprobs(self.logits_RV[rows], [token for _, token in step], most)
        return {position: entry for (position, _), entry in zip(step, said, strict=True)}

    def rows(self, copy: int) -> Rows:
        """What a rule of acceptance reads of copy ``copy``."""
        rows = slice(self.bounds[copy], self.bounds[copy + 1])
        return Rows(self.positions[rows], self.tokens[rows], self.rank_log_odds[rows])

    def stale(self, copy: int) -> Stale:
        """The distribution of copy ``copy``, to draft from in the next round."""
        return self._summary(copy)()

    def stale_later(self, copy: int) -> Callable[[], Stale]:
        """What gives :meth:`stale` when it is asked for, apart from the forward's logits, which can
        then be freed. A GPU begins now: it is idle while the host goes on."""
        if self.logits_RV.is_cuda:
            return self._summary(copy)
        return partial(self.alone(copy).stale, 0)

    def alone(self, copy: int) -> "Judged":
        """The rows of copy ``copy`` apart from the forward's.

        A forward of that copy alone is kept as it is: a round without drafts pays for no copy.
        """
        whole = self.logits_RV.untyped_storage().nbytes() == self.logits_RV.nbytes
        if whole and len(self.bounds) == 2:
            return self
        rows = slice(self.bounds[copy], self.bounds[copy + 1])
        logits, told = self.logits_RV[rows].clone(), [told[rows] for told in self._told]
        same = self.scores_RV is self.logits_RV
        return Judged(
            sequence=self.sequence,
            bounds=(0, rows.stop - rows.start),
            states=(self.states[copy],),
            positions=self.positions[rows],
            read=lambda: told,
            logits_RV=logits,
            scores_RV=logits if same else self.scores_RV[rows].clone(),
            hidden_RH=None if self.hidden_RH is None else self.hidden_RH[rows].clone(),
        )

    def _summary(self, copy: int) -> Callable[[], Stale]:
        rows = slice(self.bounds[copy], self.bounds[copy + 1])
        logits = self.logits_RV[rows]
        scores = logits if self.scores_RV is self.logits_RV else self.scores_RV[rows]
        hidden = None if self.hidden_RH is None else self.hidden_RH[rows]
        ranked = self.rank_log_odds[rows]
        return summarize_later(self.positions[rows], logits, scores, ranked, hidden)


def _noise(
    sequence: Drawing, start: int, states: Seq[State], masked: Seq[Ints], device: torch.device
) -> Tensor:
    """The noise ``[R, V]`` of every row."""
    tables: dict[int, Tensor] = {}
    for state, positions in zip(states, masked, strict=True):
        if len(positions) not in tables:
            tables[len(positions)] = sequence.gumbel(start, state, device)
    if len(tables) == 1:
        (table,) = tables.values()
        return table[to_device(torch.from_numpy(np.concatenate(masked)), device)]
    return torch.cat([tables[len(m)][to_device(torch.from_numpy(m), device)] for m in masked])


def judge(
    sequence: Drawing,
    start: int,
    states: Seq[State],
    logits_RV: Tensor,
    hidden_RH: Tensor | None = None,
) -> Judged:
    """Draw the token and its confidence at every position of ``states``, copies of the block at
    ``start``, that is asked for.

    On a GPU this only begins: who judges all requests before reading one of them waits once.
    """
    options, spec = sequence.request.options, sequence.spec
    asked = [np.array(sequence.asked(state), dtype=np.int64) for state in states]
    positions = np.concatenate(asked)
    logits_RV = suppress_mask_token(logits_RV, spec.mask_token_id)
    if start == 0 and set(states[0]) == {spec.mask_token_id}:
        # An empty prompt: nothing but masks is seen, so all rows of the root are equal, and
        # rounding, which differs between devices, must not choose among them.
        logits_RV[1 : len(asked[0])] = logits_RV[0]
    warm = options.temperature > 0
    noise = _noise(sequence, start, states, asked, logits_RV.device) if warm else None
    sampling = (options.temperature, options.top_k, options.top_p)
    drawn = perturbed_scores(logits_RV, noise, *sampling)
    tokens = drawn.argmax(dim=1)
    # With shared noise, what is drawn now is likely drawn again; with fresh noise it says nothing.
    fresh = warm and not options.coupled
    scores = filtered_scores(logits_RV, *sampling) if fresh else drawn
    ranked = tokens if options.confidence == "chosen" else logits_RV.argmax(dim=1)
    return Judged(
        sequence=sequence,
        bounds=(0, *np.cumsum([len(rows) for rows in asked]).tolist()),
        states=tuple(states),
        positions=positions,
        read=fetch_later(tokens, log_odds(logits_RV, ranked)),
        logits_RV=logits_RV,
        scores_RV=scores,
        hidden_RH=hidden_RH,
    )
