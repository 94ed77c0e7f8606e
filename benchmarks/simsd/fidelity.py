"""How far the temporal mask's slots are from the exact states that they stand for.

A draft's slots are read in one masked forward, and its states in one batch of copies; both are of
the same target behind the same text, so that what differs is the mask alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from decoders.companion import MaskedForwarder
from decoders.copies import Copies, copy_batch
from decoders.options import DecodeOptions
from decoders.request import Request
from decoders.sampling import suppress_mask_token
from decoders.sequence import Sequence as Decoding
from decoders.simsd.companion import Pair, SimSD, verification
from decoders.simsd.draft import BlockDraft, ask_of
from decoders.simsd.small_model import SmallModel
from decoders.state import fill, masked_positions
from models.target import Target
from models.transformer import Transformer

WHOLE_BLOCK = DecodeOptions(method="simsd")


@dataclass(frozen=True)
class Slot:
    """One drafted position, by its step: divergence in nats, exact from masked; whether both put
    the same token first, and whether it is the drafted one, under either."""

    step: int
    divergence: float
    agrees: bool
    accepted_masked: bool
    accepted_exact: bool


@torch.inference_mode()
def measure_text(
    targets: Sequence[Target], small: SmallModel, text: Sequence[int], first: int
) -> list[list[Slot]]:
    """Slots of every block behind position ``first``, drafted behind the true ``text`` before it,
    for each of several ``targets`` (of one block size)."""
    spec = targets[0].spec
    block, begin = spec.block_size, -(-first // spec.block_size) * spec.block_size
    found: list[list[Slot]] = [[] for _ in targets]
    sequence = Decoding(Request("text", tuple(text[:begin]), WHOLE_BLOCK), 0, spec)
    for target in targets:
        target.open_slot(0)
        target.prefill(0, text[:begin])
    for start in range(begin, len(text) - block + 1, block):
        (draft,) = small.draft([ask_of(sequence)])
        for target, slots in zip(targets, found, strict=True):
            slots += compare(target, sequence, draft)
            target.prefill(0, text[start : start + block])
        sequence.committed.extend(text[start : start + block])
    for target in targets:
        target.close_slot(0)
    small.leave(0)
    return found


def compare(target: Target, sequence: Decoding, draft: BlockDraft) -> Iterator[Slot]:
    """Every drafted position under the mask and in its exact state."""
    masked = target.forward_queries([verification(sequence, draft)])[: len(draft.tokens)]
    exact = exact_rows(target, sequence, draft)
    own, true = (
        torch.log_softmax(suppress_mask_token(rows.double(), target.spec.mask_token_id), dim=1)
        for rows in (masked, exact)
    )
    gaps = (true.exp() * (true - own).nan_to_num(nan=0.0)).sum(dim=1).tolist()
    firsts = zip(own.argmax(dim=1).tolist(), true.argmax(dim=1).tolist(), strict=True)
    for index, (gap, (ours, theirs)) in enumerate(zip(gaps, firsts, strict=True)):
        token = draft.tokens[index]
        yield Slot(index + 1, gap, ours == theirs, ours == token, theirs == token)


def exact_rows(target: Target, sequence: Decoding, draft: BlockDraft) -> Tensor:
    """``[G, V]`` logits of each drafted position in the state from which it was drafted."""
    return exact_look(target, [(sequence, draft)])[0][: len(draft.tokens)]


def exact_look(target: Target, pairs: Sequence[Pair]) -> list[Tensor]:
    """What :meth:`SimSD.look` gives, from a batch of exact states in place of the mask."""
    parts, wanted = [], []
    mask = target.spec.mask_token_id
    for sequence, draft in pairs:
        states = [sequence.state]
        for commit in draft.fills.items():
            states.append(fill(states[-1], (commit,)))
        behind = masked_positions(states[-1], mask)
        rows, at = [], 0
        for state, position in zip(states, draft.positions, strict=False):
            rows.append(at + sum(token == mask for token in state[:position]))
            at += state.count(mask)
        wanted.append([*rows, *range(at, at + len(behind))])
        parts.append(Copies(sequence.unstored, states[0], tuple(states[1:])))
    batch, num_rows = copy_batch([sequence.slot for sequence, _ in pairs], parts, mask)
    found = target.forward(batch).split(num_rows)
    return [rows[index] for rows, index in zip(found, wanted, strict=True)]


class ExactSlots(SimSD):
    """SimSD without its approximation: the same drafts, acceptance and order, over exact states.
    What is lost all the same is lost to the drafter's order."""

    def look(self, target: MaskedForwarder, pairs: Sequence[Pair]) -> list[Tensor]:
        """The logits of the states that the slots stand for."""
        assert isinstance(target, Target)
        return exact_look(target, pairs)


def first_layers(model: Transformer, count: int) -> Target:
    """A target of the first ``count`` layers, read out by the whole one's norm and head."""
    spec = model.spec.model_copy(update={"num_layers": count})
    with torch.device("meta"):
        short = Transformer(spec)
    short.embed_tokens, short.norm, short.lm_head = model.embed_tokens, model.norm, model.lm_head
    short.layers = model.layers[:count]
    return Target(short.eval())
