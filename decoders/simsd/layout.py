"""What one SimSD verification shows the target: [known | D | D~], and who sees whom in it.

D holds the draft's tokens, D~ a mask slot for every position of D, both at the same rotary
positions; logits are read in the slots. tau is the drafter's step that filled a position, and its
slot inherits it; a position that the drafter left open has tau = infinity and stays masked in D
(SimSD, sections 1 to 3 of its method).

Shapes: Q rows of the query.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from decoders.state import State, masked_positions

Section = Literal["known", "data", "slot"]
KNOWN_STEP = 0.0
OPEN_STEP = math.inf


@dataclass(frozen=True)
class Row:
    """One row of the query; ``position`` is within the block, ``step`` is tau."""

    section: Section
    position: int
    token: int
    step: float


def lay_out(state: State, draft: Mapping[int, int], mask_id: int) -> tuple[Row, ...]:
    """The rows for a ``draft`` (position to token, in the drafter's order) of a block's open
    positions. Known tokens are a set: the block may have holes anywhere."""
    open_positions = masked_positions(state, mask_id)
    assert set(draft) <= set(open_positions), "only open positions are drafted"
    step = {position: float(index + 1) for index, position in enumerate(draft)}
    taus = {position: step.get(position, OPEN_STEP) for position in open_positions}
    known = [(i, token) for i, token in enumerate(state) if token != mask_id]
    return (
        *(Row("known", position, token, KNOWN_STEP) for position, token in known),
        *(Row("data", p, draft.get(p, mask_id), tau) for p, tau in taus.items()),
        *(Row("slot", position, mask_id, tau) for position, tau in taus.items()),
    )


def temporal_mask(rows: Sequence[Row]) -> Tensor:
    """``[Q, Q]``, true where the row sees the column; all rows see the cached prefix.

    Known tokens see each other only. A draft token sees known ones, draft tokens up to its own
    step and the slots of later steps; a slot sees known tokens, draft tokens of earlier steps and
    the slots from its own step on: what stood in the block when its token was drawn.
    """
    steps = torch.tensor([row.step for row in rows], dtype=torch.float64)
    sections = [row.section for row in rows]
    known, data, slot = (
        torch.tensor([section == name for section in sections])
        for name in ("known", "data", "slot")
    )
    row, column = steps[:, None], steps[None, :]
    return (
        known[None, :].expand(len(rows), -1)
        | (data[:, None] & data & (column <= row))
        | (data[:, None] & slot & (column > row))
        | (slot[:, None] & data & (column < row))
        | (slot[:, None] & slot & (column >= row))
    )


def rotary_offsets(rows: Sequence[Row], copied: bool = True) -> list[int]:
    """Rotary positions within the block. Slots copy those of their draft tokens; not ``copied``,
    they continue behind the block: the ablation that breaks verification."""
    block = 1 + max(row.position for row in rows)
    apart = [row.section == "slot" and not copied for row in rows]
    return [row.position + (block if moved else 0) for row, moved in zip(rows, apart, strict=True)]


def read_rows(rows: Sequence[Row], mask_QQ: Tensor) -> list[int]:
    """Indices of the rows that some slot sees: nothing else can change a slot's logits, since what
    such a row sees the slot sees too."""
    slots = [index for index, row in enumerate(rows) if row.section == "slot"]
    return mask_QQ[slots].any(dim=0).nonzero().squeeze(1).tolist()
