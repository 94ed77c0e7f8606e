"""One tensor-parallel rank of a target in a process of its own.

The module stays light: torch and the target's code are imported where a rank is brought up, so
that whoever only holds handles (a group's keeper, a trial) does not pay for them.
"""

from __future__ import annotations

import asyncio
import os
import threading
import traceback
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import ray
from pydantic import ValidationError

from actors.group_setup import GroupSetup
from decoders.options import DecodeOptions
from models.invalid import one_line

if TYPE_CHECKING:
    from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]

    from actors.batching import BatchingEngine, Delta
    from decoders.forwarder import Forwarder
    from decoders.request import Request
    from decoders.trace import Trace
    from models.ranks import Ranks
    from models.target import Target


class GroupError(RuntimeError):
    """The ranks of a target are lost or out of step: their group must be rebuilt."""


class TargetRank:
    """Rank 0 owns the engine and decodes; the others follow it in a thread.

    Calls that decode run in threads, so that the rest is answered meanwhile.
    """

    def __init__(self, setup: GroupSetup, rank: int) -> None:
        self.setup = setup
        self.rank = rank
        self._turn = asyncio.Lock()
        self._store: TCPStore | None = None
        self._ranks: Ranks | None = None
        self._batching: BatchingEngine | None = None
        self._digest = ""

    async def prepare(self) -> int | None:
        """Import what decoding needs; rank 0 of several returns the port where the others meet."""
        return await asyncio.to_thread(self._prepare)

    def _prepare(self) -> int | None:
        import torch

        from models.ranks import open_store

        torch.set_num_threads(1)
        if self.rank > 0 or self.setup.target.tp == 1:
            return None
        self._store = store = open_store()
        return store.port

    async def bring_up(self, port: int | None) -> None:
        """Join the group at ``port`` and load this rank's share of the target.

        Raises ``ValueError`` for a configuration that cannot be opened.
        """
        await asyncio.to_thread(self._bring_up, port)

    def _bring_up(self, port: int | None) -> None:
        from actors.loading import check_ranks_fit, load_target
        from models.leading import LeadingTarget
        from models.ranks import join_ranks, reach_store

        config = self.setup.target
        if port is None:
            self._lead(load_target(config))
            return
        # Before they meet: afterwards some of them would be filling what others look at.
        check_ranks_fit(config)
        store = self._store or reach_store(port)
        self._ranks = ranks = join_ranks(store, self.rank, config.tp, config.device)
        share = load_target(config, ranks)
        if ranks.leads:
            self._lead(LeadingTarget(share, ranks))
        else:
            threading.Thread(target=self._follow, args=(share, ranks), daemon=True).start()

    def _lead(self, forwarder: Forwarder) -> None:
        from actors.batching import BatchingEngine
        from actors.drafter_actor import open_remote_drafters
        from actors.loading import cache_tokens
        from decoders.engine import Engine
        from decoders.proposers.registry import open_drafters
        from models.checkpoint import find_checkpoint
        from models.digests import digest

        setup, folder = self.setup, find_checkpoint(self.setup.target.path)
        opener = {"target": open_drafters, "actor": open_remote_drafters}[setup.drafter.placement]
        proposers = opener(folder, forwarder.spec, setup.drafter, set(setup.methods))
        self._digest = digest(folder)
        tokens = cache_tokens(setup.target, setup.max_batch, setup.max_cache_tokens)
        self._batching = BatchingEngine(
            Engine(folder, forwarder, proposers), setup.max_batch, tokens
        )

    def _follow(self, share: Target, ranks: Ranks) -> None:
        from models.leading import follow
        from models.ranks import leave_ranks

        try:
            follow(share, ranks)
            leave_ranks()
        except Exception:  # the thread's edge: only the end of the process tells rank 0 at once
            traceback.print_exc()
            os._exit(1)

    @property
    def batching(self) -> BatchingEngine:
        assert self._batching is not None, "only rank 0 of a group that is up decodes"
        return self._batching

    async def generate(
        self, rows: Sequence[Mapping[str, Any]], options: DecodeOptions, trace: bool = False
    ) -> list[dict[str, Any]]:
        """Output rows in the order of the prompt ``rows``; streamed requests wait meanwhile.

        Raises ``ValueError`` for bad input, and :class:`GroupError` when the ranks are lost.
        """
        async with self._turn:
            return await asyncio.to_thread(self._generate, rows, options, trace)

    def _generate(
        self, rows: Sequence[Mapping[str, Any]], options: DecodeOptions, trace: bool
    ) -> list[dict[str, Any]]:
        from decoders.prompts import PromptRow

        with told_apart(), self.batching.exclusive() as engine:
            return engine.generate([PromptRow.model_validate(row) for row in rows], options, trace)

    async def record(
        self, rows: Sequence[Mapping[str, Any]], options: DecodeOptions, hidden: bool = False
    ) -> list[Trace]:
        """Traces of a draft-free run, in the order of the prompt ``rows``; with ``hidden``, with
        the target's hidden states."""
        async with self._turn:
            return await asyncio.to_thread(self._record, rows, options, hidden)

    def _record(
        self, rows: Sequence[Mapping[str, Any]], options: DecodeOptions, hidden: bool
    ) -> list[Trace]:
        from decoders.prompts import PromptRow

        with told_apart(), self.batching.exclusive() as engine:
            return engine.record([PromptRow.model_validate(row) for row in rows], options, hidden)

    async def stream(
        self, request: Request, stop: Sequence[str] = ()
    ) -> AsyncGenerator[Delta, None]:
        """Deltas of one answer in the running batch; closing or cancelling takes it out."""
        with told_apart():
            async with aclosing(self.batching.stream(request, stop)) as deltas:
                async for delta in deltas:
                    yield delta

    async def ping(self) -> int:
        """The process id, also while a decode runs; raises when the batch has ended."""
        if self._batching is not None:
            self._batching.check()
        return os.getpid()

    async def facts(self) -> dict[str, Any]:
        """What this rank holds and where; on rank 0 also the target's digest, spec and load."""
        import torch

        from actors.memory import peak_memory

        config = self.setup.target
        facts: dict[str, Any] = {
            "rank": self.rank,
            "pid": os.getpid(),
            "node": ray.get_runtime_context().get_node_id(),
            "target": config.path,
            "device": config.device,
            "dtype": config.precision,
            "tp": config.tp,
            "peak_memory_bytes": peak_memory("cpu"),
            "peak_device_memory_bytes": torch.cuda.max_memory_allocated(),
        }
        if self._batching is not None:
            facts |= {
                "digest": self._digest,
                "spec": self._batching.engine.target.spec.model_dump(),
                "methods": ["standard", "threshold", *self._batching.engine.proposers],
                "running": self._batching.num_running,
                "waiting": self._batching.num_waiting,
                "stats": asdict(self._batching.stats()),
            }
        return facts

    async def close(self) -> None:
        """Rank 0: end the batch and let the others go; the process may be killed afterwards."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        from models.leading import LeadingTarget
        from models.ranks import leave_ranks

        if self._batching is None:
            return
        self._batching.close()
        if isinstance(self._batching.engine.target, LeadingTarget):
            self._batching.engine.target.stop()
            leave_ranks()


@contextmanager
def told_apart() -> Iterator[None]:
    """Bad input stays a ``ValueError``, in one line; anything else that ends a decode leaves the
    ranks out of step and becomes a :class:`GroupError`."""
    try:
        yield
    except ValidationError as error:
        raise ValueError(one_line(error)) from error
    except ValueError:
        raise
    except Exception as error:
        raise GroupError(f"{type(error).__name__}: {error}") from error


RemoteTargetRank: Any = ray.remote(num_cpus=0)(TargetRank)
