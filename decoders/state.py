"""The state of an active block: a tuple of L token ids, the mask id where nothing is filled.

Two states are equal when their fills are, whatever the order of the commits (SPOT section 4.1).
"""

from dataclasses import dataclass

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


@dataclass(frozen=True)
class BlockEnd:
    """What ends the active block, or the text in it; all positions are within the block.

    ``prompt_end`` leading positions are the prompt's (zero or negative past its block), positions
    from ``limit`` on lie beyond ``max_new_tokens``.
    """

    mask_id: int
    prompt_end: int
    limit: int
    stop_ids: tuple[int, ...]

    def text_ended(self, state: State) -> bool:
        """Whether nothing is masked before the limit or before the first generated stop id."""
        written = state.index(self.mask_id) if self.mask_id in state else len(state)
        if written >= self.limit:
            return True
        generated = state[max(0, self.prompt_end) : written]
        return not set(self.stop_ids).isdisjoint(generated)

    def finished(self, state: State) -> bool:
        """Whether ``state`` fills the block or ends the text: nothing is left to verify in it."""
        return self.mask_id not in state or self.text_ended(state)
