"""Which block copies a request forwards in one round, and how those of a batch lie side by side."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from decoders.proposers.base import Place
from decoders.request import Kind
from decoders.state import State
from models.target import NO_PARENT, CopyBatch


@dataclass(frozen=True)
class Copies:
    """One request's part of a forward.

    ``stored``: the full block before the active one, stored on the way. Then ``root`` and
    ``drafts`` of the active block; its ``full`` drafts, of which no logits are asked; and
    ``ahead``, states of the next block with the full draft that each one stands behind. Of the root
    the filled positions from ``editable_from`` on are asked about, too.
    """

    stored: State | None
    root: State
    drafts: tuple[State, ...] = ()
    full: tuple[State, ...] = ()
    ahead: tuple[tuple[State, State], ...] = ()
    opens: bool = False
    """Whether this is the block's first forward."""
    editable_from: int | None = None

    @property
    def num_drafts(self) -> int:
        """Copies that count in the budget."""
        return len(self.drafts) + len(self.full) + len(self.ahead)

    @property
    def kind(self) -> Kind:
        if self.num_drafts:
            return "verify"
        return "open" if self.opens else "step"

    @property
    def states(self) -> list[State]:
        stored = [] if self.stored is None else [self.stored]
        ahead = [state for _, state in self.ahead]
        return [*stored, self.root, *self.drafts, *self.full, *ahead]

    @property
    def parents(self) -> list[int]:
        """Parents relative to this part's first copy."""
        assert self.stored is None or not self.full, "a parent has no parent"
        here = 1 + len(self.drafts) + len(self.full)
        if self.stored is not None:
            return [NO_PARENT, *[0] * here]
        first = 1 + len(self.drafts)
        return [NO_PARENT] * here + [first + self.full.index(full) for full, _ in self.ahead]

    @property
    def stores(self) -> list[bool]:
        return [self.stored is not None, *[False] * (len(self.states) - 1)]

    def rows(self, mask_id: int) -> Tensor:
        """Flat positions, counted from this part's first copy, whose logits are asked for."""
        asked = torch.tensor(self.states) == mask_id
        if self.editable_from is not None:
            asked[int(self.stored is not None), self.editable_from :] = True
        return asked.flatten().nonzero().squeeze(1)


def arrange(
    places: Iterable[Place],
    root: State,
    stored: State | None,
    opens: bool,
    mask_id: int,
    editable_from: int | None = None,
) -> Copies:
    """The copies of a round whose drafts stand at ``places``."""
    inside: list[State] = []
    full: list[State] = []
    ahead: list[tuple[State, State]] = []
    for behind, state in places:
        if behind is not None:
            ahead.append((behind, state))
        else:
            (inside if mask_id in state else full).append(state)
    return Copies(stored, root, tuple(inside), tuple(full), tuple(ahead), opens, editable_from)


def copy_batch(
    slots: Sequence[int], parts: Sequence[Copies], mask_id: int
) -> tuple[CopyBatch, list[int]]:
    """All requests' copies side by side, and how many logit rows each request asked for."""
    all_slots: list[int] = []
    parents: list[int] = []
    states: list[State] = []
    stores: list[bool] = []
    rows: list[Tensor] = []
    for slot, part in zip(slots, parts, strict=True):
        first = len(states)
        all_slots += [slot] * len(part.states)
        parents += [p if p == NO_PARENT else first + p for p in part.parents]
        stores += part.stores
        states += part.states
        rows.append(part.rows(mask_id) + first * len(part.root))
    batch = CopyBatch(all_slots, torch.tensor(states), parents, stores, torch.cat(rows))
    return batch, [len(r) for r in rows]
