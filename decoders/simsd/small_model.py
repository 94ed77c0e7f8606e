"""The small diffusion model as a drafter: it denoises the block one position a step.

It follows every request with a prefix cache of full blocks of its own, and commits by the request's
own rule (confidence, cap, temperature, noise), as if it were the target.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from decoders.copies import Copies, copy_batch
from decoders.judge import judge
from decoders.noise import NoiseTables
from decoders.request import Request
from decoders.sampling import filtered_scores
from decoders.simsd.draft import Ask, BlockDraft, draft_length
from decoders.state import State, fill, masked_positions
from models.target import Target


class DraftedBlock:
    """One block while it is drafted; what :func:`judge` reads of a sequence.

    ``unstored`` is a full block in front of it that the next forward stores.
    """

    def __init__(self, ask: Ask, target: Target, unstored: State | None) -> None:
        self.slot, self.spec, self.state, self.unstored = ask.slot, target.spec, ask.state, unstored
        self.request = Request(str(ask.slot), (), ask.options, ask.noise_seed)
        self.block_start = len(ask.text)
        self.length = draft_length(ask.options, ask.state.count(target.spec.mask_token_id))
        self.fills: list[tuple[int, int]] = []
        self.best: list[int] = []
        self.distributions: list[Tensor] = []
        self._noise = NoiseTables(self.spec, ask.noise_seed, ask.options.coupled)

    @property
    def complete(self) -> bool:
        return len(self.fills) == self.length

    def asked(self, state: State) -> tuple[int, ...]:
        """The open positions."""
        return masked_positions(state, self.spec.mask_token_id)

    def gumbel(self, start: int, state: State, device: torch.device) -> Tensor:
        """The noise that the target itself would draw with."""
        return self._noise.table(start, state, device)

    def copies(self) -> Copies:
        """What the next forward runs."""
        return Copies(self.unstored, self.state, opens=not self.fills)

    def commit(self, logits_MV: Tensor) -> None:
        """Fill one position from the logits of the open ones."""
        options = self.request.options
        judged = judge(self, self.block_start, (self.state,), logits_MV)
        ((position, token),) = judged.step(0)
        row = judged.logits_RV[judged.positions.tolist().index(position)]
        self.best.append(int(row.argmax()))
        if options.temperature > 0:
            sampling = (options.temperature, options.top_k, options.top_p)
            self.distributions.append(filtered_scores(row[None], *sampling)[0])
        self.fills.append((position, token))
        self.state, self.unstored = fill(self.state, ((position, token),)), None

    def draft(self) -> BlockDraft:
        """What was drafted."""
        tokens = [token for _, token in self.fills]
        log_probs = [float(d[t]) for d, t in zip(self.distributions, tokens, strict=False)]
        return BlockDraft(
            tuple(position for position, _ in self.fills),
            tuple(tokens),
            tuple(self.best),
            tuple(log_probs),
            self.distributions.__getitem__,
        )


class SmallModel:
    """Drafts for every request of one target, in this process."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.num_forwards = 0
        self._held: dict[int, list[int]] = {}

    @torch.inference_mode()
    def draft(self, asks: Sequence[Ask]) -> list[BlockDraft]:
        """One forward a step over all asks that want another token."""
        blocks = [DraftedBlock(ask, self.target, self._catch_up(ask)) for ask in asks]
        while wanting := [block for block in blocks if not block.complete]:
            parts = [block.copies() for block in wanting]
            slots, mask_id = [block.slot for block in wanting], self.target.spec.mask_token_id
            batch, num_rows = copy_batch(slots, parts, mask_id)
            logits_RV = self.target.forward(batch)
            self.num_forwards += 1
            for block, rows in zip(wanting, logits_RV.split(num_rows), strict=True):
                block.commit(rows)
        return [block.draft() for block in blocks]

    def ahead(self, asks: Sequence[Ask]) -> None:
        """In the target's own process there is nobody to begin."""

    def leave(self, slot: int) -> None:
        """Free the slot's prefix."""
        if slot in self._held:
            del self._held[slot]
            self.target.close_slot(slot)

    def _catch_up(self, ask: Ask) -> State | None:
        """Bring the slot's prefix up to the ask's text, but for a last full block, which is
        returned: it is stored with the first step. What the text no longer holds is rolled back."""
        block, held = self.target.spec.block_size, self._held.get(ask.slot)
        if held is None:
            held = self._held[ask.slot] = []
            self.target.open_slot(ask.slot)
        common = common_length(held, ask.text) // block * block
        if common < len(held):
            self.target.retract(ask.slot, common)
        missing = list(ask.text[common:])
        # The prompt comes as a whole; a text that grows, block by block.
        apart = missing if not common else missing[:-block]
        if apart:
            self.target.prefill(ask.slot, apart)
            self.num_forwards += 1
        held[common:] = missing
        return tuple(missing[len(apart) :]) or None


def common_length(held: Sequence[int], text: Sequence[int]) -> int:
    """Tokens at the beginning that are the same."""
    for index, (own, other) in enumerate(zip(held, text, strict=False)):
        if own != other:
            return index
    return min(len(held), len(text))
