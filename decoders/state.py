"""The state of an active block: a tuple of L token ids, the mask id where nothing is filled.

Two states are equal when their fills are, whatever the order of the commits (SPOT section 4.1).
"""

from collections.abc import Iterable

from decoders.rules import Step

State = tuple[int, ...]


def masked_positions(state: State, mask_id: int) -> tuple[int, ...]:
    """Positions within the block that are not filled, ascending."""
    return tuple(i for i, token in enumerate(state) if token == mask_id)


def fill(state: State, step: Step) -> State:
    """The state after committing ``step`` (positions within the block)."""
    tokens = list(state)
    for position, token in step:
        tokens[position] = token
    return tuple(tokens)


def text_ended(
    state: State, mask_id: int, prompt_end: int, limit: int, stop_ids: Iterable[int]
) -> bool:
    """Whether nothing is masked before the limit or before the first stop id after the prompt.

    ``prompt_end`` and ``limit`` are positions within the block (they may lie outside of it).
    """
    for position, token in enumerate(state):
        if position >= limit:
            return True
        if token == mask_id:
            return False
        if position >= prompt_end and token in stop_ids:
            return True
    return limit <= len(state)
