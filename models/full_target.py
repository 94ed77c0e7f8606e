"""A target whose every position sees every other one: nothing is cached, each forward runs over the
whole text with the masks that are still to be filled.

Exact, and dear: a forward over C copies of a text of T positions costs C x T positions. A slot that
is opened with ``refresh`` keeps the keys and values of its finished text instead, and its forwards
run over the active block and the masks behind it: approximate. Both answer the calls of
:class:`models.target.Target`, so that the loop and the drafters need not know.

Shapes: C copies, T positions of the whole text, L block, R requested logit rows, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F

from models.attention import fold_groups, unfold_groups
from models.kept_prefix import KeptPrefix
from models.target import NO_PARENT, CopyBatch, slot_runs, where_it_runs
from models.transformer import Attend, Transformer

MOST_TOKENS = 16384
"""Positions of one pass over the network: more copies are run in several."""


@dataclass
class Text:
    """What a slot holds: its known tokens, and how long the whole text is, masks included; keys and
    values of the known ones where the slot is to keep them."""

    length: int
    known: list[int] = field(default_factory=list)
    kept: KeptPrefix | None = None

    def finish(self, block: Sequence[int]) -> None:
        """Take in a full block."""
        self.known += block
        if self.kept is not None:
            self.kept.finish_block()

    def attend(self, first: int, start: int) -> Attend:
        """Attention of copies that are computed from position ``first`` on. Where the first copy's
        block, at ``start``, stands right behind all that is known, the known is kept."""
        if self.kept is None:
            return attend_all
        new = start == len(self.known) > self.kept.length
        return self.kept.attend(first, start - first if new else 0)


class FullTarget:
    """One bidirectional network and the texts of its active slots (on this rank)."""

    def __init__(self, model: Transformer) -> None:
        self.model = model
        self.spec = model.spec
        self.texts: dict[int, Text] = {}

    @property
    def device(self) -> torch.device:
        return self.model.norm.weight.device

    @property
    def placement(self) -> tuple[str, ...]:
        """What decides, beside the spec, how long a forward takes."""
        return where_it_runs(self.model)

    @property
    def open_slots(self) -> tuple[int, ...]:
        """Slots that hold something."""
        return tuple(self.texts)

    def open_slot(self, slot: int, length: int = 0, refresh: int = 0) -> None:
        """Give ``slot`` a text of ``length`` positions, all unknown; a shorter one than what it
        comes to hold grows. With ``refresh``, keys and values of its known tokens are kept from the
        last forward that saw them, and computed anew every ``refresh`` blocks."""
        assert slot not in self.texts, f"slot {slot} is in use"
        self.texts[slot] = Text(length, kept=KeptPrefix(refresh) if refresh else None)

    def close_slot(self, slot: int) -> None:
        """Forget the text of ``slot``."""
        del self.texts[slot]

    def prefill(self, slot: int, tokens: Sequence[int]) -> None:
        """Append known ``tokens``, as many as there are: no block grid before the prompt's end."""
        self.texts[slot].known += tokens

    def forward(self, batch: CopyBatch) -> Tensor:
        """Logits ``[R, V]`` of the requested rows. A copy that is to be stored becomes part of its
        slot's text, and is run only if rows of it are asked for."""
        return self.forward_with_hidden(batch)[0]

    @torch.inference_mode()
    def forward_with_hidden(self, batch: CopyBatch) -> tuple[Tensor, Tensor]:
        """:meth:`forward`, and the last hidden states ``[R, D]`` that the logits were read from."""
        block = self.spec.block_size
        copies = batch.tokens_CL.tolist()
        asked = torch.zeros(len(copies), dtype=torch.bool)
        asked[batch.rows // block] = True
        hidden = torch.zeros(
            (len(copies), block, self.spec.hidden_size), dtype=self.model.dtype, device=self.device
        )
        for slot, first, last in slot_runs(batch.slots):
            text, wanted, starts, rows = self.texts[slot], [], [], []
            for copy in range(first, last):
                if not asked[copy]:
                    continue
                parent = batch.parents[copy]
                before = text.known + (copies[parent] if parent != NO_PARENT else [])
                masks = max(0, text.length - len(before) - block)
                rows.append(before + copies[copy] + [self.spec.mask_token_id] * masks)
                starts.append(len(before))
                wanted.append(copy)
            for copy in range(first, last):
                if batch.stores[copy]:
                    text.finish(copies[copy])
            if wanted:
                hidden[wanted] = self._blocks(text, rows, starts)
        asked_rows = hidden.flatten(0, 1)[batch.rows.to(self.device)]
        return self.model.logits(asked_rows), asked_rows

    def adopt(self, slot: int, index: int) -> None:
        """Nothing is kept of a copy; options that need it are refused before."""
        raise AssertionError(f"a bidirectional target has no copy {index} of slot {slot} to store")

    def _blocks(self, text: Text, rows: Sequence[Sequence[int]], starts: Sequence[int]) -> Tensor:
        """Hidden states ``[C, L, D]`` that predict the blocks at ``starts`` of equally long
        ``rows``, each the whole text with its masks."""
        shift = 1 if self.spec.prediction == "shifted" else 0
        # The token before a block predicts the block's first one, so it is never read off the kept.
        first = max(0, text.kept.length - shift) if text.kept else 0
        within = torch.arange(self.spec.block_size, device=self.device) - shift
        places = (torch.tensor(starts, device=self.device)[:, None] + within).clamp(min=0) - first
        tokens = torch.tensor(rows, device=self.device)[:, first:]
        positions = torch.arange(first, first + tokens.shape[1], device=self.device)
        most = max(1, MOST_TOKENS // tokens.shape[1])
        found = []
        for copy in range(0, len(rows), most):
            part = slice(copy, copy + most)
            attend = text.attend(first, starts[0] if copy == 0 else 0)
            hidden = self.model.hidden(tokens[part], positions.expand_as(tokens[part]), attend)
            found.append(hidden.take_along_dim(places[part].unsqueeze(-1), dim=1))
        return torch.cat(found)


def attend_all(_layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Every position of a row sees all of the row: ``q[C,T,H,E]``, ``k, v[C,T,K,E]``."""
    folded = fold_groups(q, k.shape[2])
    out = F.scaled_dot_product_attention(folded, k.transpose(1, 2), v.transpose(1, 2))
    return unfold_groups(out, q.shape[1])
