"""SimSD by its definition: the table of who sees whom, element by element, and a decode loop in
which every forward runs over everything under an explicit mask."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from decoders.options import DecodeOptions
from decoders.simsd.layout import Row, lay_out
from decoders.state import State
from models.transformer import Transformer
from tests.reference.decoding import naive_step
from tests.reference.network import block_mask, reference_logits


def sees(row: Row, column: Row) -> bool:
    """The table of algorithms.md, section 7, one element at a time."""
    if row.section == "known":
        return column.section == "known"
    if column.section == "known":
        return True
    if row.section == "data":
        return column.step <= row.step if column.section == "data" else column.step > row.step
    return column.step < row.step if column.section == "data" else column.step >= row.step


def states_behind(state: State, order: Sequence[int], tokens: Sequence[int]) -> list[State]:
    """The block from which each token of a draft was drawn: what its slot stands for."""
    found, current = [], list(state)
    for position, token in zip(order, tokens, strict=True):
        found.append(tuple(current))
        current[position] = token
    return [*found, tuple(current)]


@dataclass(frozen=True)
class NaiveRound:
    drafts: int
    accepted: int
    steps: tuple[tuple[tuple[int, int], ...], ...]


def slot_logits(
    model: Transformer, text: Sequence[int], state: State, draft: dict[int, int], apart: bool
) -> dict[int, list[float]]:
    """The target's logits in every slot: one plain forward over [text | known | D | D~], the whole
    layout, under the explicit mask. ``apart`` gives slots rotary positions of their own."""
    spec, size = model.spec, len(text)
    rows = lay_out(state, draft, spec.mask_token_id)
    tokens = (*text, *(row.token for row in rows))
    mask = torch.zeros((len(tokens), len(tokens)), dtype=torch.bool)
    mask[:size, :size] = block_mask(size, spec.block_size)
    mask[size:, :size] = True
    for i, row in enumerate(rows):
        for j, column in enumerate(rows):
            mask[size + i, size + j] = sees(row, column)
    moved = [len(state) if apart and row.section == "slot" else 0 for row in rows]
    positions = [*range(size), *(size + r.position + m for r, m in zip(rows, moved, strict=True))]
    logits = reference_logits(model, tokens, mask_TT=mask, positions=positions)
    logits[:, spec.mask_token_id] = -math.inf
    return {
        row.position: logits[size + index].tolist()
        for index, row in enumerate(rows)
        if row.section == "slot"
    }


def naive_draft(
    small: Transformer, text: Sequence[int], state: State, options: DecodeOptions
) -> dict[int, int]:
    """Standard decoding of the block by the small model, T=0, no cache."""
    tokens, mask_id, draft = [*text, *state], small.spec.mask_token_id, {}
    size, count = len(text), state.count(mask_id)
    for _ in range(min(int(options.gamma) or count, count)):
        logits = reference_logits(small, tokens)
        logits[:, mask_id] = -math.inf
        rows = {p: logits[p].tolist() for p in range(size, len(tokens)) if tokens[p] == mask_id}
        ((position, token),) = naive_step(rows, options, 0)
        tokens[position] = token
        draft[position - size] = token
    return draft


def naive_simsd(
    model: Transformer, small: Transformer, prompt: Sequence[int], options: DecodeOptions
) -> list[NaiveRound]:
    """SimSD at T=0 by its definition, stop ids ignored: the rounds of one request."""
    spec, rounds = model.spec, []
    block, mask_id, limit = (
        spec.block_size,
        spec.mask_token_id,
        len(prompt) + options.max_new_tokens,
    )
    start = len(prompt) // block * block
    text, tail = list(prompt[:start]), prompt[start:]
    state = (*tail, *(mask_id,) * (block - len(tail)))
    while True:
        written = len(text) + (state.index(mask_id) if mask_id in state else block)
        if written >= limit:
            return rounds
        if mask_id not in state:
            text, state = [*text, *state], (mask_id,) * block
        draft = naive_draft(small, text, state, options)
        steps, accepted = naive_steps(model, text, state, draft, options)
        taken = []
        for step in steps:
            state = tuple(dict(step).get(i, token) for i, token in enumerate(state))
            taken.append(tuple((len(text) + position, token) for position, token in step))
            written = len(text) + (state.index(mask_id) if mask_id in state else block)
            if written >= limit or mask_id not in state:
                break
        rounds.append(NaiveRound(len(draft), min(accepted, len(taken)), tuple(taken)))


def naive_steps(
    model: Transformer,
    text: Sequence[int],
    state: State,
    draft: dict[int, int],
    options: DecodeOptions,
) -> tuple[list[tuple[tuple[int, int], ...]], int]:
    """Accepted tokens, the correction or the bonus, and the rest; and how many were accepted."""
    rows = slot_logits(model, text, state, draft, apart=False)
    best = {p: max(range(len(row)), key=lambda v: (row[v], -v)) for p, row in rows.items()}
    order = list(draft) if options.order == "temporal" else sorted(draft)
    steps = []
    for index, position in enumerate(order):
        steps.append(((position, best[position]),))
        if draft[position] == best[position]:
            continue
        behind = sorted(order[index + 1 :])
        filled = {"target-argmax": best, "draft-argmax": draft}.get(options.rest, {})
        if behind and filled:
            steps.append(tuple((p, filled[p]) for p in behind))
        return steps, index
    still = {p: row for p, row in rows.items() if p not in draft}
    if still:
        steps.append(naive_step(still, options, 0))
    return steps, len(order)
