"""Method ``simsd``: the small model's drafts, verified under the temporal mask or as exact states.

Under the mask one forward verifies a whole draft, and the output approximates standard decoding:
it is never exact by promise. ``verify: exact`` drafts states for the one loop instead.
"""

from collections.abc import Sequence

from torch import Tensor

from decoders.boundary import Leg, Told
from decoders.companion import MaskedForwarder
from decoders.logprobs import read_logprobs
from decoders.proposers.base import Place
from decoders.request import Round
from decoders.rules import Step
from decoders.sequence import Sequence as Decoding
from decoders.simsd.draft import Ask, BlockDraft, Drafting, ask_of
from decoders.simsd.layout import lay_out, read_rows, rotary_offsets, temporal_mask
from decoders.simsd.verdict import reach, steps_taken
from decoders.state import fill, masked_positions
from models.queries import Query

Pair = tuple[Decoding, BlockDraft]
"""A sequence and the draft of its active block."""


class SimSD:
    """Drafts with a small model for all requests of one target.

    ``copied`` is SimSD's rotary copy; without it slots get positions of their own, an ablation.
    """

    def __init__(self, drafting: Drafting, copied: bool = True) -> None:
        self.drafting = drafting
        self.copied = copied
        self.num_tested = self.num_accepted = 0
        """Draft tokens that were looked at under the mask, and those of them that passed."""

    def states(self, sequences: Sequence[Decoding]) -> list[list[Place]]:
        """The drafted block, one fill more a draft; finished states save no forward."""
        drafts = self.drafting.draft([ask_of(sequence) for sequence in sequences])
        return [
            chain_of(sequence, draft) for sequence, draft in zip(sequences, drafts, strict=True)
        ]

    def round(self, target: MaskedForwarder, sequences: Sequence[Decoding]) -> list[Decoding]:
        """One draft and one masked forward for every sequence."""
        drafts = self.drafting.draft([ask_of(sequence) for sequence in sequences])
        pairs = list(zip(sequences, drafts, strict=True))
        self.drafting.ahead([ask for each in pairs if (ask := next_ask(*each)) is not None])
        done = []
        for (sequence, draft), rows in zip(pairs, self.look(target, pairs), strict=True):
            verdict = reach(sequence, draft, rows)
            self.num_tested += verdict.tested
            self.num_accepted += verdict.accepted
            steps, before = steps_taken(sequence, verdict)
            told = told_of(sequence, draft, rows, steps)
            placed, finished = sequence.advance(Leg(steps, before, None, told), goes_on=False)
            num_drafts, accepted = len(draft.positions), min(verdict.accepted, len(steps))
            sequence.rounds.append(Round("verify", num_drafts, accepted, placed))
            if finished:
                done.append(sequence)
        return done

    def look(self, target: MaskedForwarder, pairs: Sequence[Pair]) -> Sequence[Tensor]:
        """The target's logits for every draft, in one forward: of the drafted positions in drafting
        order, then of those that stayed open, ascending."""
        queries = [verification(sequence, draft, self.copied) for sequence, draft in pairs]
        return target.forward_queries(queries).split([len(query.rows) for query in queries])

    def leave(self, slot: int) -> None:
        """Let the small model forget the slot's text."""
        self.drafting.leave(slot)


def told_of(sequence: Decoding, draft: BlockDraft, rows_RV: Tensor, steps: Sequence[Step]) -> Told:
    """What the target said of the committed tokens in their slots (rows as in :meth:`SimSD.look`);
    nothing where the request does not ask."""
    most = sequence.request.top_logprobs
    if most is None:
        return {}
    mask, drafted = sequence.spec.mask_token_id, draft.positions
    remaining = [p for p in masked_positions(sequence.state, mask) if p not in drafted]
    row_of = {position: row for row, position in enumerate((*drafted, *remaining))}
    commits = [commit for step in steps for commit in step]
    rows = rows_RV[[row_of[position] for position, _ in commits]]
    said = read_logprobs(rows, [token for _, token in commits], most)
    return {position: entry for (position, _), entry in zip(commits, said, strict=True)}


def chain_of(sequence: Decoding, draft: BlockDraft) -> list[Place]:
    """The states that a draft passes through, up to one that is finished."""
    state, places = sequence.state, []
    for commit in draft.fills.items():
        state = fill(state, (commit,))
        if sequence.end.finished(state):
            break
        places.append((None, state))
    return places


def verification(sequence: Decoding, draft: BlockDraft, copied: bool = True) -> Query:
    """The masked query of one draft; rows that no slot sees are left out. Logits are asked for in
    the drafted positions' slots, in drafting order, then in the open ones', ascending."""
    rows = lay_out(sequence.state, draft.fills, sequence.spec.mask_token_id)
    mask, offsets = temporal_mask(rows), rotary_offsets(rows, copied)
    kept = read_rows(rows, mask)
    slots = {rows[i].position: at for at, i in enumerate(kept) if rows[i].section == "slot"}
    remaining = sorted(slots.keys() - set(draft.positions))
    return Query(
        slot=sequence.slot,
        tokens=[rows[i].token for i in kept],
        offsets=[offsets[i] for i in kept],
        sees_QQ=mask[kept][:, kept],
        rows=[slots[position] for position in (*draft.positions, *remaining)],
        stored=sequence.unstored or (),
    )


def next_ask(sequence: Decoding, draft: BlockDraft) -> Ask | None:
    """What will be asked next if a draft that fills its block is accepted whole; ``None`` where
    the target has a word first, or the text would end."""
    mask = sequence.spec.mask_token_id
    state = fill(sequence.state, tuple(draft.fills.items()))
    if mask in state or sequence.end.text_ended(state):
        return None
    request = sequence.request
    text = [*sequence.committed, *state]
    empty = (mask,) * len(state)
    return Ask(sequence.slot, text, empty, request.options, request.noise_seed)
