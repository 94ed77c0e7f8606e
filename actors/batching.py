"""Continuous batching: one thread decodes a batch that requests join and leave between rounds.

Clients live on event loops, the forwards on this thread; what passes between them are deltas. The
engine is the same one that offline decoding uses, so a streamed answer equals the plain one.
"""

import itertools
import threading
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager

from actors.ticket import Delta, Ticket
from decoders.engine import Engine
from decoders.request import Request
from decoders.sequence import Sequence as Decoding


class EngineClosed(RuntimeError):
    """The engine was closed while a request waited or ran."""


class BatchingEngine:
    """Streams answers of ``engine``, at most ``max_batch`` requests in a forward, first come first
    served beyond that. Thread-safe; owns a thread until :meth:`close`."""

    def __init__(self, engine: Engine, max_batch: int) -> None:
        if max_batch < 1:
            raise ValueError(f"max_batch {max_batch} must be at least 1")
        self.engine = engine
        self.max_batch = max_batch
        self._decoder = engine.decoder()
        self._numbers = itertools.count()
        self._waiting: deque[Ticket] = deque()
        self._running: dict[str, tuple[Ticket, Decoding]] = {}
        self._state = threading.Condition()
        self._claim = threading.Lock()
        self._claimed = self._in_round = self._closing = False
        self._ended: Exception | None = None
        self._thread = threading.Thread(target=self._main, name="batching-engine", daemon=True)
        self._thread.start()

    @property
    def num_running(self) -> int:
        """Requests in the current batch."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Requests that wait for a place in the batch."""
        return len(self._waiting)

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
        """Hold the loop between two rounds and lend the engine; requests in the batch wait."""
        with self._claim:
            with self._state:
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
        internal_id = f"{next(self._numbers)}:{request.id}"
        ticket = Ticket(request, internal_id, self.engine.codec, stop)
        with self._state:
            self.check()
            self._waiting.append(ticket)
            self._state.notify_all()
        return ticket

    def _leave(self, ticket: Ticket) -> None:
        ticket.cancelled = True
        with self._state:
            if ticket in self._waiting:
                self._waiting.remove(ticket)

    def _main(self) -> None:
        reason: Exception = EngineClosed("the batching engine was closed")
        try:
            while self._begin_round():
                try:
                    self._round()
                except Exception as error:  # a failed forward ends its batch, not the thread
                    self._empty_batch(error)
                finally:
                    self._end_round()
            self._empty_batch(reason)
        except Exception as error:  # the target could not even free its slots
            reason = error
        finally:
            self._end(reason)

    def _begin_round(self) -> bool:
        """Wait for work and for permission; false when the engine closes."""

        def ready() -> bool:
            return self._closing or (
                not self._claimed and (bool(self._waiting) or bool(self._running))
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
        """Leave, join, forward, deliver."""
        for request_id, (ticket, _) in list(self._running.items()):
            if ticket.cancelled:
                self._remove(request_id)
        self._admit()
        if not self._running:
            return
        results = {result.request.id: result for result in self._decoder.step()}
        for request_id, (ticket, decoding) in list(self._running.items()):
            delta = ticket.advance(decoding, results.get(request_id))
            if delta is not None and delta.result is not None:
                self._remove(request_id)
            if delta is not None:
                ticket.put(delta)

    def _admit(self) -> None:
        while len(self._running) < self.max_batch and self._waiting:
            with self._state:
                if not self._waiting:
                    return
                ticket = self._waiting.popleft()
            try:
                decoding = self._decoder.add(ticket.request)
            except ValueError as error:
                ticket.put(error)
            except Exception as error:
                ticket.put(error)
                raise
            else:
                self._running[ticket.request.id] = (ticket, decoding)

    def _remove(self, request_id: str) -> None:
        del self._running[request_id]
        if request_id in self._decoder.active:
            self._decoder.remove(request_id)

    def _empty_batch(self, error: Exception) -> None:
        """Fail every running request and free its slot."""
        for ticket, _ in self._running.values():
            ticket.put(error)
        self._running.clear()
        for request_id in list(self._decoder.active):
            self._decoder.remove(request_id)

    def _end(self, reason: Exception) -> None:
        with self._state:
            self._ended = reason
            for ticket in self._waiting:
                ticket.put(reason)
            self._waiting.clear()
            self._in_round = False
            self._state.notify_all()
