"""The training-free chain: the stale order, the stale tokens, one fill a draft."""

import numpy as np
import pytest
import torch

from decoders.options import DecodeOptions
from decoders.proposers.base import Origin, View
from decoders.proposers.chain import ChainProposer, chain
from decoders.request import Request
from decoders.stale import Stale, summarize
from decoders.state import BlockEnd, State

MASK = 3


def stale_of(positions: list[int], tokens: list[int], confidences: list[float]) -> Stale:
    """A stale distribution whose top-1 tokens and probabilities are these."""
    logits = torch.full((len(positions), 12), -9.0, dtype=torch.float64)
    for row, (token, p) in enumerate(zip(tokens, confidences, strict=True)):
        logits[row] = torch.log(torch.tensor((1 - p) / 10))
        logits[row, token] = torch.log(torch.tensor(p))
        logits[row, MASK] = -torch.inf
    odds = np.log(np.array(confidences) / (1 - np.array(confidences)))
    return summarize(np.array(positions), logits, logits, odds)


def view_of(root: State, stale: Stale, end: BlockEnd | None = None, **values: object) -> View:
    options = DecodeOptions.lenient(**({"budget": 8} | values))
    origin = Origin(Request("one", (), options), 0)
    return View(root, stale, options, end or BlockEnd(MASK, 0, 100, (1,)), origin)


def view(root: State, stale: Stale, end: BlockEnd | None = None, **values: float) -> View:
    return view_of(root, stale, end, method="chain", **values)


STALE = stale_of([0, 1, 3, 4], [5, 6, 8, 9], [0.5, 0.9, 0.95, 0.8])
ROOT: State = (MASK, MASK, 7, 8, MASK)
"""Position 3, the most confident one, was committed with the step from the stale state."""


def test_positions_are_filled_in_stale_order_with_stale_tokens() -> None:
    drafts = chain(view(ROOT, STALE))
    assert [draft.state for draft in drafts] == [(MASK, 6, 7, 8, MASK), (MASK, 6, 7, 8, 9)]
    assert [draft.mass for draft in drafts] == pytest.approx([0.9, 0.9 * 0.8])


def test_the_state_that_fills_the_block_is_not_drafted() -> None:
    assert all(MASK in draft.state for draft in chain(view(ROOT, STALE)))
    assert chain(view((5, 6, 7, 8, MASK), STALE)) == []


@pytest.mark.parametrize("budget", [0, 1, 2, 3, 20])
def test_a_budget_cuts_the_chain(budget: int) -> None:
    assert len(chain(view(ROOT, STALE, budget=budget))) == min(budget, 2)


def test_the_cap_decides_the_order_as_it_does_for_the_target() -> None:
    capped = [draft.state for draft in chain(view(ROOT, STALE, cap=0.5))]
    assert capped == [(5, MASK, 7, 8, MASK), (5, 6, 7, 8, MASK)]
    assert chain(view(ROOT, STALE, cap=0.85))[1].state == (MASK, 6, 7, 8, 9)


def test_nothing_is_drafted_beyond_the_texts_end() -> None:
    limited = BlockEnd(MASK, 0, 2, (1,))
    assert [d.state for d in chain(view(ROOT, STALE, limited))] == [
        (MASK, 6, 7, 8, MASK),
        (MASK, 6, 7, 8, 9),
    ]
    assert [d.state for d in chain(view((5, MASK, 7, 8, MASK), STALE, limited))] == []
    stops = stale_of([0, 1, 4], [1, 6, 9], [0.99, 0.9, 0.8])
    assert chain(view((MASK, MASK, 7, 8, MASK), stops)) == []


def test_every_view_gets_its_own_drafts() -> None:
    views = [view(ROOT, STALE), view(ROOT, STALE, budget=1), view((5, 6, 7, 8, MASK), STALE)]
    assert ChainProposer().propose(views) == [chain(v) for v in views]
    assert [len(drafts) for drafts in ChainProposer().propose(views)] == [2, 1, 0]
