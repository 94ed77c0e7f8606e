"""How ranks follow rank 0: it announces every operation in a few integers, and all run it together.

Logits are whole on rank 0 only. Shapes: R requested logit rows, V vocabulary.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum

import torch
from torch import Tensor

from models.opening import AnyTarget, caching
from models.queries import Query, pack_queries, unpack_queries
from models.ranks import Ranks
from models.spec import TargetSpec
from models.target import CopyBatch


class Operation(IntEnum):
    """What rank 0 announces; a header is the operation and two counts or ids."""

    STOP = 0
    OPEN = 1
    CLOSE = 2
    PREFILL = 3
    FORWARD = 4
    ADOPT = 5
    QUERIES = 6
    KEEP = 7
    RESTORE = 8
    DROP = 9


class LeadingTarget:
    """Rank 0's target: every operation is announced, so that all ranks run it together."""

    def __init__(self, local: AnyTarget, ranks: Ranks) -> None:
        assert ranks.leads
        self.local = local
        self.ranks = ranks
        self.spec = local.spec
        self.placement = (*local.placement, f"{ranks.size} ranks")

    @property
    def device(self) -> torch.device:
        return self.local.device

    def open_slot(self, slot: int, length: int = 0, refresh: int = 0) -> None:
        """Give ``slot`` an empty prefix on every rank."""
        self._announce(Operation.OPEN, slot, length, torch.tensor([refresh]))
        self.local.open_slot(slot, length, refresh)

    def close_slot(self, slot: int) -> None:
        """Free the prefix of ``slot`` on every rank."""
        self._announce(Operation.CLOSE, slot, 0)
        self.local.close_slot(slot)

    def prefill(self, slot: int, tokens: Sequence[int]) -> None:
        """Append whole blocks of known ``tokens`` to the slot's prefix on every rank."""
        self._announce(Operation.PREFILL, slot, len(tokens), torch.tensor(tokens))
        self.local.prefill(slot, tokens)

    def forward(self, batch: CopyBatch) -> Tensor:
        """Logits ``[R, V]`` of the requested rows; every rank stores its share."""
        return self.forward_with_hidden(batch)[0]

    def forward_with_hidden(self, batch: CopyBatch) -> tuple[Tensor, Tensor]:
        """:meth:`forward`, and the rows' last hidden states, which every rank has."""
        self._announce(Operation.FORWARD, len(batch.slots), len(batch.rows), pack(batch))
        return self.local.forward_with_hidden(batch)

    def adopt(self, slot: int, index: int) -> None:
        """Store, on every rank, its share of a copy that the slot was last offered."""
        self._announce(Operation.ADOPT, slot, index)
        self.local.adopt(slot, index)

    def forward_queries(self, queries: Sequence[Query]) -> Tensor:
        """Logits ``[R, V]`` of masked queries' rows; every rank stores its share."""
        message = pack_queries(queries)
        self._announce(Operation.QUERIES, len(message), 0, message)
        return caching(self.local).forward_queries(queries)

    def keep(self, slot: int, first: int, numbers: Sequence[int]) -> None:
        """Keep, on every rank, copies of its share of the slot's blocks from the ``first``-th."""
        self._announce(Operation.KEEP, slot, len(numbers), torch.tensor([first, *numbers]))
        caching(self.local).keep(slot, first, numbers)

    def restore(self, slot: int, numbers: Sequence[int]) -> None:
        """Begin the slot's empty prefix with kept blocks, on every rank."""
        self._announce(Operation.RESTORE, slot, len(numbers), torch.tensor(numbers))
        caching(self.local).restore(slot, numbers)

    def drop(self, numbers: Sequence[int]) -> None:
        """Forget kept blocks on every rank."""
        self._announce(Operation.DROP, len(numbers), 0, torch.tensor(numbers))
        caching(self.local).drop(numbers)

    def stop(self) -> None:
        """Let the other ranks return from :func:`follow`."""
        self._announce(Operation.STOP, 0, 0)

    def _announce(
        self, operation: Operation, first: int, second: int, payload: Tensor | None = None
    ) -> None:
        self.ranks.announce(torch.tensor([operation, first, second]))
        if payload is not None:
            self.ranks.announce(payload)


def follow(target: AnyTarget, ranks: Ranks) -> None:
    """Run on ``target`` what rank 0 announces, until it says to stop."""

    def payload(size: int) -> Tensor:
        return ranks.announce(torch.empty(size, dtype=torch.int64))

    def queries(size: int, _: int) -> None:
        caching(target).forward_queries(unpack_queries(payload(size)))

    def keep(slot: int, count: int) -> None:
        first, *numbers = payload(1 + count).tolist()
        caching(target).keep(slot, first, numbers)

    run: dict[Operation, Callable[[int, int], object]] = {
        Operation.QUERIES: queries,
        Operation.OPEN: lambda slot, length: target.open_slot(slot, length, int(payload(1))),
        Operation.CLOSE: lambda slot, _: target.close_slot(slot),
        Operation.ADOPT: target.adopt,
        Operation.KEEP: keep,
        Operation.RESTORE: lambda s, count: caching(target).restore(s, payload(count).tolist()),
        Operation.DROP: lambda count, _: caching(target).drop(payload(count).tolist()),
        Operation.PREFILL: lambda slot, size: target.prefill(slot, payload(size).tolist()),
        Operation.FORWARD: lambda copies, rows: target.forward(
            unpack(payload(copies * (3 + target.spec.block_size) + rows), copies, target.spec)
        ),
    }
    while True:
        operation, first, second = payload(3).tolist()
        if operation == Operation.STOP:
            return
        run[Operation(operation)](first, second)


def pack(batch: CopyBatch) -> Tensor:
    """A batch as one row of integers: slots, parents, stores, tokens, rows."""
    columns = [torch.tensor(column) for column in (batch.slots, batch.parents, batch.stores)]
    return torch.cat([*columns, batch.tokens_CL.flatten(), batch.rows]).to("cpu", torch.int64)


def unpack(message: Tensor, copies: int, spec: TargetSpec) -> CopyBatch:
    """The inverse of :func:`pack`."""
    slots, parents, stores, tokens, rows = message.split(
        [
            copies,
            copies,
            copies,
            copies * spec.block_size,
            len(message) - copies * (3 + spec.block_size),
        ]
    )
    return CopyBatch(
        slots.tolist(),
        tokens.view(copies, spec.block_size),
        parents.tolist(),
        [bool(stored) for stored in stores.tolist()],
        rows,
    )
