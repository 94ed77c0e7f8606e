"""One request while it is decoded: its block, its stale distribution, its rounds so far."""

import time
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor

from decoders.auto_budget import kind_of
from decoders.noise import gumbel_table, row_seed
from decoders.request import Kind, Request, Result, Round
from decoders.stale import Stale
from decoders.state import BlockEnd, State
from decoders.walk import Walk
from models.spec import TargetSpec
from models.target import NO_PARENT


@dataclass(frozen=True)
class Copies:
    """One request's part of a forward: ``states[0]`` may be a full block to store; the root is
    ``states[root]``, its drafts follow."""

    kind: Kind
    states: tuple[State, ...]
    root: int = 0

    @property
    def parents(self) -> list[int]:
        """Parents relative to this part's first copy."""
        return (
            [NO_PARENT] + [0] * (len(self.states) - 1)
            if self.root
            else ([NO_PARENT] * len(self.states))
        )

    @property
    def stores(self) -> list[bool]:
        return [index < self.root for index in range(len(self.states))]


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
        self.committed: list[int] = list(request.prompt_ids[: self.aligned_prompt])
        self.unstored: State | None = None
        self.prefilled = False
        tail = request.prompt_ids[self.aligned_prompt :]
        masks = (spec.mask_token_id,) * (spec.block_size - len(tail))
        self._open_block((*tail, *masks))

    @property
    def aligned_prompt(self) -> int:
        """Prompt tokens before the first decoded block: floor(P / L) * L, since blocks are counted
        from position 0; bidirectional families count them from the prompt's end."""
        if self.spec.topology == "bidirectional":
            return self.prompt_end
        return self.prompt_end // self.spec.block_size * self.spec.block_size

    @property
    def whole_length(self) -> int:
        """Positions up to the end of the block that holds the last token asked for."""
        block = self.spec.block_size
        blocks = -(-(self.limit - self.aligned_prompt) // block)
        return self.aligned_prompt + blocks * block

    @property
    def block_start(self) -> int:
        return len(self.committed)

    def _open_block(self, state: State) -> None:
        self.state = state
        self.stale: Callable[[], Stale] | None = None
        self.opened = False
        self._gumbel: Tensor | None = None
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
        start = self.block_start
        mask_id = self.spec.mask_token_id
        return BlockEnd(mask_id, self.prompt_end - start, self.limit - start, self.stop_ids)

    def gumbel(self, state: State, device: torch.device) -> Tensor:
        """The noise table ``[L, V]`` that ``state`` of the active block is drawn with.

        Coupled, it is one for the whole block, which is kept. Uncoupled, it depends on the number
        of fills, so that each step draws anew and a run is still a function of its seed.
        """
        spec, seed = self.spec, self.request.noise_seed
        size = (self.block_start, spec.block_size, spec.vocab_size)
        if not self.request.options.coupled:
            fills = self.block_start + len(state) - state.count(spec.mask_token_id)
            return gumbel_table(row_seed(seed, f"fills {fills}"), *size, device)
        if self._gumbel is None:
            self._gumbel = gumbel_table(seed, *size, device)
        return self._gumbel

    def copies(self, drafts: Seq[State]) -> Copies:
        """What this request forwards next."""
        if not self.opened:
            if self.unstored is None:
                return Copies("open", (self.state,))
            return Copies("open", (self.unstored, self.state), root=1)
        return Copies("verify" if drafts else "step", (self.state, *drafts))

    def apply(self, copies: Copies, result: Walk, stale: Callable[[], Stale] | None) -> bool:
        """Take in what a forward committed, and what reads the last accepted state's distribution;
        returns whether the text is complete."""
        start = self.block_start
        steps = tuple(
            tuple((start + position, token) for position, token in step) for step in result.steps
        )
        num_drafts = len(copies.states) - copies.root - 1
        self.rounds.append(Round(copies.kind, num_drafts, result.accepted, steps))
        if not self.settled:
            self._settle(result)
        self.state, self.stale = result.state, stale
        self.opened, self.unstored = True, None
        if not self.settled:
            return False
        if self.end.text_ended(self.state):
            return True
        if self.spec.mask_token_id not in self.state:
            self.unstored = self.state
            self.committed.extend(self.state)
            self._open_block((self.spec.mask_token_id,) * self.spec.block_size)
        return False

    def _settle(self, result: Walk) -> None:
        """With editing a block is decoded to its end before anything in it counts: until it is
        full, and a pass over the full block has replaced nothing or was the last one."""
        mask_id = self.spec.mask_token_id
        is_pass = mask_id not in self.state
        self._passes += is_pass
        unchanged = is_pass and not result.steps[-1]
        last = self._passes == self.request.options.edit_passes
        self.settled = mask_id not in result.state and (unchanged or last)

    def text_so_far(self) -> tuple[int, ...]:
        """Generated ids up to the first mask, the first stop id or the limit; they never change, so
        a block that is still edited is not among them."""
        active = self.state if self.settled else ()
        ids = (*self.committed, *active)[self.prompt_end : self.limit]
        ends = [i for i, t in enumerate(ids) if t in self.stop_ids or t == self.spec.mask_token_id]
        return ids[: ends[0]] if ends else ids

    def result(self) -> Result:
        """The finished row's facts."""
        ids = self.text_so_far()
        stopped = len(ids) < self.request.options.max_new_tokens
        return Result(
            request=self.request,
            token_ids=ids,
            stop_reason="stop" if stopped else "length",
            rounds=tuple(self.rounds),
            seconds=time.perf_counter() - self.started,
        )
