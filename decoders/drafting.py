"""What a request shows its proposer, and the drafts that come of the answers: those of the active
block, and those that go on into the next one."""

from collections.abc import Sequence as Seq
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from decoders.boundary import across, cut, first_state, likeliest_fill, merge_behind, nearest
from decoders.proposers.base import Draft, Origin, Place, Proposer, View
from decoders.sequence import Sequence
from decoders.state import State


class Proposal(NamedTuple):
    """What is to be verified for one view: drafts, then what ``draft_refresh`` adds; ``ends`` are
    drafted for lossy rules, which may accept what needs no forward of its own."""

    view: View
    drafts: list[Draft]
    refresh: tuple[Place, ...] = ()
    ends: tuple[State, ...] = ()

    @property
    def places(self) -> list[Place]:
        return [*(draft.place for draft in self.drafts), *self.refresh]


def view_of(sequence: Sequence) -> View:
    """What a proposer may see of the active block.

    Behind a block that is yet to be stored nothing crosses: a copy has one parent.
    """
    assert sequence.stale is not None
    options = sequence.request.options
    return View(
        root=sequence.state,
        stale=sequence.stale(),
        options=options,
        end=sequence.end,
        origin=Origin(sequence.request, sequence.block_start),
        crosses=options.cross_block and sequence.unstored is None,
    )


def propose(proposer: Proposer, sequences: Seq[Sequence], views: Seq[View]) -> list[Proposal]:
    """What the proposer drafts for every view, within its budget, copies of the next block and
    refresh included."""
    parted = [part(*each) for each in zip(views, proposer.propose(views), strict=True)]
    found = [
        across(drafts, partial(first_behind, sequence), view.end.mask_id)
        for sequence, view, (drafts, _) in zip(sequences, views, parted, strict=True)
    ]
    ahead = {
        index: shown
        for index, each in enumerate(zip(sequences, views, found, strict=True))
        if (shown := view_ahead(*each))
    }
    if ahead:
        answers = proposer.propose([shown for _, shown in ahead.values()])
        for (index, (full, shown)), drafts in zip(ahead.items(), answers, strict=True):
            found[index] = merge_behind(found[index], full, part(shown, drafts)[0])
    return [
        within_budget(*each)._replace(ends=ends)
        for each, (_, ends) in zip(zip(sequences, views, found, strict=True), parted, strict=True)
    ]


def part(view: View, drafts: list[Draft]) -> tuple[list[Draft], tuple[State, ...]]:
    """The drafts that a forward can save something with, and those for lossy rules alone."""
    if view.options.lossless:
        return drafts, ()
    riding = [draft for draft in drafts if not view.barren(draft.state)]
    return riding, tuple(draft.state for draft in drafts if view.barren(draft.state))


def within_budget(sequence: Sequence, view: View, drafts: Seq[Draft]) -> Proposal:
    """The first drafts, as many as the budget and a refresh leave room for."""
    mask_id = view.end.mask_id
    kept = cut(drafts, view.budget, mask_id)
    refresh = refreshed(sequence, view, kept)
    return Proposal(view, cut(kept, view.budget - len(refresh), mask_id), refresh)


def first_behind(sequence: Sequence, full: State) -> State | None:
    """The next block's state to forward behind ``full``; none where the text ends there."""
    first = first_state(sequence.blank, full, sequence.openings)
    return None if sequence.end_of(sequence.next_start).finished(first) else first


def view_ahead(sequence: Sequence, view: View, drafts: Seq[Draft]) -> tuple[State, View] | None:
    """What a proposer may see of the next block, and the full state that it lies behind: the
    likeliest fill, if that is drafted, leaves budget, and a distribution to draft from is known."""
    if not view.crosses or not sequence.openings:
        return None
    full = likeliest_fill(view.root, view.stale, view.end.mask_id)
    opening = nearest(sequence.openings, full)
    for place, draft in enumerate(drafts, start=1):
        if draft.behind == full and place < view.budget:
            options = view.options.model_copy(update={"budget": view.budget - place})
            shown = replace(
                view,
                root=draft.state,
                stale=opening.stale(),
                options=options,
                end=sequence.end_of(sequence.next_start),
                origin=Origin(sequence.request, sequence.next_start),
                floor=view.gamma / draft.path_mass,
                crosses=False,
            )
            return full, shown
    return None


def refreshed(sequence: Sequence, view: View, drafts: Seq[Draft]) -> tuple[Place, ...]:
    """The likeliest fill and the next block's masked copy behind it, where ``draft_refresh`` is
    due: near the block's end, unless that is drafted or known already."""
    mask_id = view.end.mask_id
    horizon = sequence.request.options.draft_refresh
    if sequence.unstored is not None or view.root.count(mask_id) > horizon or view.budget < 2:
        return ()
    full = likeliest_fill(view.root, view.stale, mask_id)
    known = full in sequence.openings or any(draft.behind == full for draft in drafts)
    if known or view.end.text_ended(full):
        return ()
    return ((None, full), (full, sequence.blank))
