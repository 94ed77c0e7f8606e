"""One request while it is decoded: its block, its stale distribution, its rounds so far."""

import time
from collections.abc import Callable
from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from decoders.auto_budget import kind_of
from decoders.balance import MOST
from decoders.boundary import Leg, Opening, nearest
from decoders.copies import Copies, arrange
from decoders.noise import NoiseTables
from decoders.options import DecodeOptions
from decoders.proposers.base import Place
from decoders.request import Request, Result, Round, TokenLogprob
from decoders.rules import Step
from decoders.sight import Sight
from decoders.stale import Stale
from decoders.state import BlockEnd, State, fill
from models.spec import TargetSpec


class Sequence:
    """The live state of one request; positions in ``state`` are within the active block."""

    def __init__(self, request: Request, slot: int, spec: TargetSpec) -> None:
        self.request = request
        self.slot = slot
        self.spec = spec
        self.kind = kind_of(request.options)
        self.started = time.perf_counter()
        self.prompt_end = len(request.prompt_ids)
        self.limit = self.prompt_end + request.options.max_new_tokens
        self.stop_ids = () if request.options.ignore_stop else spec.stop_token_ids
        self.rounds: list[Round] = []
        self.sights: dict[int, Sight] | None = {} if request.watched else None
        """Of rounds, by their number, until somebody takes them."""
        self.told: dict[int, TokenLogprob] = {}
        self._noise = NoiseTables(spec, request.noise_seed, request.options.coupled)
        self.committed: list[int] = list(request.prompt_ids[: self.aligned_prompt])
        self.unstored: State | None = None
        self.held = 0
        """Tokens of the text before the active block that a slot was filled with so far."""
        self.prefilled = False
        self.cache_hits = 0
        """Prompt tokens whose keys and values were there already."""
        tail = request.prompt_ids[self.aligned_prompt :]
        masks = (spec.mask_token_id,) * (spec.block_size - len(tail))
        self._open_block((*tail, *masks))

    @property
    def aligned_prompt(self) -> int:
        """Prompt tokens before the first decoded block."""
        return self.spec.first_block(self.prompt_end)

    @property
    def whole_length(self) -> int:
        """Positions up to the end of the block that holds the last token asked for."""
        block = self.spec.block_size
        blocks = -(-(self.limit - self.aligned_prompt) // block)
        return self.aligned_prompt + blocks * block

    @property
    def block_start(self) -> int:
        return len(self.committed)

    @property
    def stored_length(self) -> int:
        """Tokens that its prefix holds once it is prefilled: all before the active block, but a
        full one that the next forward stores."""
        return self.block_start - (self.spec.block_size if self.unstored is not None else 0)

    @property
    def most_stored(self) -> int:
        """What :attr:`stored_length` comes to at most: the last block is never stored."""
        return max(self.aligned_prompt, self.whole_length - self.spec.block_size)

    @property
    def stored_text(self) -> tuple[int, ...]:
        return tuple(self.committed[: self.stored_length])

    @property
    def scratch(self) -> int:
        """Tokens beyond its prefix that a forward may write."""
        return scratch_blocks(self.request.options) * self.spec.block_size

    def park(self) -> None:
        """Its slot is given to others: what it has committed remains, its prefix does not."""
        self.held, self.prefilled, self.openings = 0, False, {}

    @property
    def next_start(self) -> int:
        return self.block_start + self.spec.block_size

    @property
    def blank(self) -> State:
        """A block of which nothing is filled."""
        return (self.spec.mask_token_id,) * self.spec.block_size

    def _open_block(self, state: State) -> None:
        self.state = state
        self.stale: Callable[[], Stale] | None = None
        self.openings: dict[State, Opening] = {}
        """What was said of the next block in this one's forwards, where that is kept."""
        self.opened = False
        self._noise.forget(self.block_start - self.spec.block_size)
        self._passes = 0
        self.settled = not self.request.options.edits

    @property
    def editable_from(self) -> int:
        """The position in the block from which on filled tokens may be replaced: with editing, all
        but the prompt's; else none."""
        if not self.request.options.edits:
            return self.spec.block_size
        return max(0, self.prompt_end - self.block_start)

    def asked(self, state: State) -> tuple[int, ...]:
        """The positions of ``state`` that the target is asked about."""
        mask_id, first = self.spec.mask_token_id, self.editable_from
        return tuple(i for i, token in enumerate(state) if token == mask_id or i >= first)

    @property
    def end(self) -> BlockEnd:
        """What ends the active block or the text in it."""
        return self.end_of(self.block_start)

    def end_of(self, start: int) -> BlockEnd:
        """What ends the block at ``start`` or the text in it."""
        mask_id = self.spec.mask_token_id
        return BlockEnd(mask_id, self.prompt_end - start, self.limit - start, self.stop_ids)

    def gumbel(self, start: int, state: State, device: torch.device) -> Tensor:
        """The noise table ``[L, V]`` that ``state`` of the block at ``start`` is drawn with."""
        return self._noise.table(start, state, device)

    def copies(self, places: Seq[Place]) -> Copies:
        """What this request forwards next, its drafts at ``places``."""
        opens, mask_id = not self.opened, self.spec.mask_token_id
        return arrange(places, self.state, self.unstored, opens, mask_id, self.editable_from)

    def advance(self, leg: Leg, goes_on: bool) -> tuple[tuple[Step, ...], bool]:
        """Commit a leg's steps in the active block, whose prefix is stored now. A full block makes
        room for the next one, which is open already where another leg ``goes_on`` in it.

        Returns the steps by absolute positions, and whether the text is complete.
        """
        start = self.block_start
        # Read only when a proposer asks: in a round without drafts it would be paid for nothing.
        self.stale = leg.stale if self.request.options.drafts else None
        placed = tuple(tuple((start + position, t) for position, t in step) for step in leg.steps)
        self.told |= {start + position: entry for position, entry in leg.told.items()}
        reached = self.state
        for step in leg.steps:
            reached = fill(reached, step)
        if not self.settled:
            self._settle(leg, reached)
        self.state, self.opened, self.unstored = reached, True, None
        if not self.settled:
            return placed, False
        if self.end.text_ended(self.state):
            return placed, True
        if self.spec.mask_token_id not in self.state:
            opening = nearest(self.openings, self.state) if self.openings else None
            self.committed.extend(self.state)
            self.unstored = None if goes_on else self.state
            self._open_block(self.blank)
            self.opened = goes_on
            self.stale = opening.stale if opening else None
        return placed, False

    def _settle(self, leg: Leg, reached: State) -> None:
        """With editing a block is decoded to its end before anything in it counts: until it is
        full, and a pass over the full block has replaced nothing or was the last one."""
        mask_id = self.spec.mask_token_id
        is_pass = mask_id not in self.state
        self._passes += is_pass
        unchanged = is_pass and not leg.steps[-1]
        last = self._passes == self.request.options.edit_passes
        self.settled = mask_id not in reached and (unchanged or last)

    def text_so_far(self) -> tuple[int, ...]:
        """Generated ids up to the first mask, the first stop id or the limit; they never change, so
        a block that is still edited is not among them."""
        active = self.state if self.settled else ()
        ids = (*self.committed, *active)[self.prompt_end : self.limit]
        ends = [i for i, t in enumerate(ids) if t in self.stop_ids or t == self.spec.mask_token_id]
        return ids[: ends[0]] if ends else ids

    def logprobs(self, begin: int, end: int) -> tuple[TokenLogprob, ...]:
        """What the target said of generated tokens ``begin`` to ``end``, if the request asks."""
        if self.request.top_logprobs is None:
            return ()
        return tuple(self.told[self.prompt_end + number] for number in range(begin, end))

    def result(self) -> Result:
        """The finished row's facts."""
        ids = self.text_so_far()
        stopped = len(ids) < self.request.options.max_new_tokens
        return Result(
            request=self.request,
            token_ids=ids,
            stop_reason="stop" if stopped else "length",
            rounds=tuple(self.rounds),
            cache_hits=self.cache_hits,
            seconds=time.perf_counter() - self.started,
        )


def scratch_blocks(options: DecodeOptions) -> int:
    """Blocks beyond the prefix that a forward may write: the one to store and the active one, an
    active one and its slots under a mask, and every full draft that another block rides behind."""
    if options.masked:
        return 3
    if not options.drafts or not (options.cross_block or options.draft_refresh):
        return 2
    most = MOST if options.budget == "auto" else options.budget
    return 3 + most // 2
