"""Continuous batching: one thread decodes a batch that requests join and leave between rounds.

Clients live on event loops, the forwards on this thread; what passes between them are deltas. The
engine is the same one that offline decoding uses, so a streamed answer equals the plain one. Who
joins, and who is parked when memory is short, is decided in :mod:`actors.waiting_line`.
"""

import threading
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import count

from actors.engine_stats import Counters, EngineStats, memory_stats
from actors.scheduler import Scheduler
from actors.ticket import Delta, Ticket
from decoders.cache_memory import BlockKeeper, CacheMemory
from decoders.engine import Engine
from decoders.request import Request


class EngineClosed(RuntimeError):
    """The engine was closed while a request waited or ran, or had ended before it came."""


class BatchingEngine:
    """Streams answers of ``engine``, at most ``max_batch`` requests in a forward, whose prefixes
    take no more than ``cache_tokens`` (``None``: there is no limit, and nothing is kept for later
    requests). Thread-safe; owns a thread until :meth:`close`."""

    def __init__(self, engine: Engine, max_batch: int, cache_tokens: int | None = None) -> None:
        if max_batch < 1:
            raise ValueError(f"max_batch {max_batch} must be at least 1")
        self.engine = engine
        self.max_batch = max_batch
        self._memory = None
        if cache_tokens is not None:
            assert isinstance(engine.target, BlockKeeper), "its prefix cache is what is limited"
            self._memory = CacheMemory(engine.target, cache_tokens)
        self._decoder = engine.decoder(memory=self._memory)
        self._counters = Counters()
        self._scheduler = Scheduler(self._decoder, max_batch, self._counters)
        self._numbers = count()
        self._arrived: list[tuple[int, Ticket]] = []
        self._state = threading.Condition()
        self._claim = threading.Lock()
        self._claimed = self._in_round = self._closing = False
        self._ended: Exception | None = None
        self._thread = threading.Thread(target=self._main, name="batching-engine", daemon=True)
        self._thread.start()

    @property
    def num_running(self) -> int:
        """Requests in the current batch."""
        return len(self._scheduler.running)

    @property
    def num_waiting(self) -> int:
        """Requests that wait for a place in the batch."""
        waiting = (*(t for _, t in self._arrived), *(m.ticket for m in self._scheduler.line))
        return sum(not ticket.cancelled for ticket in waiting)

    def stats(self) -> EngineStats:
        """How the engine stands and what it did so far."""
        return EngineStats(
            running=self.num_running,
            waiting=self.num_waiting,
            max_batch=self.max_batch,
            **asdict(self._counters),
            **memory_stats(self._memory),
        )

    def check(self) -> None:
        """Raise what ended the engine, if anything did."""
        if self._ended is not None:
            raise self._ended

    async def stream(
        self, request: Request, stop: Sequence[str] = ()
    ) -> AsyncGenerator[Delta, None]:
        """Deltas of one answer, ended early before any of the ``stop`` strings.

        Closing the generator takes the request out of the batch before the next round. Raises
        ``ValueError`` for a request that cannot be decoded, else what a forward raised.
        """
        ticket = self._enqueue(request, stop)
        try:
            while True:
                item = await ticket.items.get()
                if isinstance(item, Exception):
                    raise item
                yield item
                if item.result is not None:
                    return
        finally:
            self._leave(ticket)

    @contextmanager
    def exclusive(self) -> Iterator[Engine]:
        """Hold the loop between two rounds and lend the engine; requests in the batch wait.

        Raises what ended the engine, if anything did.
        """
        with self._claim:
            with self._state:
                self.check()
                self._claimed = True
                self._state.wait_for(lambda: not self._in_round)
            try:
                yield self.engine
            finally:
                with self._state:
                    self._claimed = False
                    self._state.notify_all()

    def close(self) -> None:
        """End the thread after its round; requests under way fail with :class:`EngineClosed`."""
        with self._state:
            self._closing = True
            self._state.notify_all()
        self._thread.join()

    def _enqueue(self, request: Request, stop: Sequence[str]) -> Ticket:
        number = next(self._numbers)
        ticket = Ticket(request, f"{number}:{request.id}", self.engine.codec, stop)
        with self._state:
            if self._ended is not None:
                raise EngineClosed("the batching engine has ended") from self._ended
            self._arrived.append((number, ticket))
            self._state.notify_all()
        return ticket

    def _leave(self, ticket: Ticket) -> None:
        ticket.cancelled = True
        with self._state:
            self._state.notify_all()

    def _main(self) -> None:
        reason: Exception = EngineClosed("the batching engine was closed")
        try:
            while self._begin_round():
                try:
                    self._round()
                except Exception as error:  # a failed forward ends its batch, not the thread
                    self._scheduler.fail(failure_of(error))
                finally:
                    self._end_round()
            self._scheduler.fail(reason)
        except Exception as error:  # the target could not even free its slots
            reason = error
        finally:
            self._end(reason)

    def _begin_round(self) -> bool:
        """Wait for work and for permission; false when the engine closes."""

        def ready() -> bool:
            return self._closing or (
                not self._claimed
                and bool(self._arrived or self._scheduler.line or self._scheduler.running)
            )

        with self._state:
            self._state.wait_for(ready)
            self._in_round = not self._closing
            return self._in_round

    def _end_round(self) -> None:
        with self._state:
            self._in_round = False
            self._state.notify_all()

    def _round(self) -> None:
        """Leave, park, join, forward, deliver."""
        with self._state:
            arrived, self._arrived = self._arrived, []
        for number, ticket in arrived:
            self._scheduler.receive(ticket, number)
        self._scheduler.fill()
        if not self._scheduler.running:
            return
        self._counters.begin_round()
        results = {result.request.id: result for result in self._decoder.step()}
        for member in list(self._scheduler.running.values()):
            rounds = member.decoding.rounds
            self._counters.add(rounds[member.counted :])
            member.counted = len(rounds)
            delta = member.ticket.advance(member.decoding, results.get(member.id))
            if delta is not None and delta.result is not None:
                self._counters.finished += 1
                self._scheduler.remove(member)
            if delta is not None:
                member.ticket.put(delta)

    def _end(self, reason: Exception) -> None:
        with self._state:
            self._ended = reason
            for _, ticket in self._arrived:
                ticket.put(reason)
            self._arrived = []
            self._scheduler.dismiss(reason)
            self._in_round = False
            self._state.notify_all()


def failure_of(error: Exception) -> Exception:
    """What a round raised, as its requests are told: a ``ValueError`` in it is none of theirs."""
    if not isinstance(error, ValueError):
        return error
    failure = RuntimeError(f"{type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure
