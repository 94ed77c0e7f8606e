"""The requests of one batching engine: who waits, who runs, who is parked.

It belongs to the engine's thread; others may look at its numbers.
"""

from dataclasses import dataclass

from actors.engine_stats import Counters
from actors.ticket import Ticket
from actors.waiting_line import Place, next_to_join, to_park
from decoders.cache_memory import need_of
from decoders.loop import Decoder
from decoders.sequence import Sequence as Decoding


@dataclass
class Member:
    """A request that waits or runs; ``counted`` rounds of it are in the counters."""

    ticket: Ticket
    decoding: Decoding
    place: Place
    counted: int = 0

    @property
    def id(self) -> str:
        return self.ticket.request.id


class Scheduler:
    """Keeps the batch of ``decoder`` full, by the policy of :mod:`actors.waiting_line`."""

    def __init__(self, decoder: Decoder, max_batch: int, counters: Counters) -> None:
        self.decoder = decoder
        self.max_batch = max_batch
        self.counters = counters
        self.line: list[Member] = []
        """In the order of arrival. Replaced, never changed: others look at it."""
        self.running: dict[str, Member] = {}

    def receive(self, ticket: Ticket, number: int) -> None:
        """Let a new request stand in line; one that cannot be decoded is told so, and whatever it
        is that keeps it from there is its own and nobody else's."""
        try:
            decoding = self.decoder.prepare(ticket.request)
            member = Member(ticket, decoding, Place(number, self._need(decoding)))
        except Exception as error:
            ticket.put(error)
        else:
            self._stand(member)

    def fill(self) -> None:
        """Before a round: who was cancelled leaves, who finds no room any more is parked, and as
        many as can join."""
        self.line = [member for member in self.line if not member.ticket.cancelled]
        for member in [member for member in self.running.values() if member.ticket.cancelled]:
            self.remove(member)
        self._park()
        self._admit()

    def remove(self, member: Member) -> None:
        """Take a request out of the batch, finished or not. Should that fail, it still counts as
        running, so that :meth:`fail` tells its client."""
        if member.id in self.decoder.active:
            self.decoder.remove(member.id)
        del self.running[member.id]

    def fail(self, error: Exception) -> None:
        """Fail every running request and free its slot."""
        for member in self.running.values():
            member.ticket.put(error)
        self.running.clear()
        for request_id in list(self.decoder.active):
            self.decoder.remove(request_id)

    def dismiss(self, reason: Exception) -> None:
        """Fail every waiting request."""
        for member in self.line:
            member.ticket.put(reason)
        self.line = []

    def _stand(self, member: Member) -> None:
        self.line = sorted([*self.line, member], key=lambda each: each.place.number)

    def _park(self) -> None:
        memory = self.decoder.memory
        if memory is None:
            return
        members = sorted(self.running.values(), key=lambda each: each.place.number)
        needs = [self._need(member.decoding) for member in members]
        for member in members[len(members) - to_park(needs, memory.tokens) :]:
            self.decoder.park(member.id)
            del self.running[member.id]
            self.counters.parked += 1
            member.place = Place(member.place.number, self._need(member.decoding)).unpassable()
            self._stand(member)

    def _admit(self) -> None:
        while len(self.running) < self.max_batch:
            index = next_to_join([member.place for member in self.line], self._room())
            if index is None:
                return
            member = self.line[index]
            self.line = [each for each in self.line if each is not member]
            self.counters.joined += 1
            self.counters.passed += index
            self.running[member.id] = member
            self.decoder.join(member.decoding)

    def _need(self, decoding: Decoding) -> int:
        return 0 if self.decoder.memory is None else need_of(decoding)

    def _room(self) -> int:
        memory = self.decoder.memory
        if memory is None:
            return 0
        return memory.room_beside([member.decoding for member in self.running.values()])
