"""What a batching engine did and does: numbers for health checks and metrics."""

from collections.abc import Iterable
from dataclasses import dataclass

from decoders.cache_memory import CacheMemory
from decoders.request import Round


@dataclass
class Counters:
    """Totals since the engine began, counted on its thread."""

    rounds: int = 0
    """Rounds of the batch; each is one forward, however many requests share it."""
    commits: int = 0
    """Positions filled."""
    drafts: int = 0
    accepted: int = 0
    round_drafts: int = 0
    """Of the last round."""
    joined: int = 0
    """Times that a request joined the batch; a parked one joins again."""
    finished: int = 0
    parked: int = 0
    """Times that a request was taken out of the batch because memory was short."""
    passed: int = 0
    """Times that a request joined before one that had come earlier and found no room."""

    def begin_round(self) -> None:
        self.rounds += 1
        self.round_drafts = 0

    def add(self, rounds: Iterable[Round]) -> None:
        """What one request's part of the round came to."""
        for each in rounds:
            self.commits += sum(map(len, each.steps))
            self.drafts += each.drafts
            self.round_drafts += each.drafts
            self.accepted += each.accepted


@dataclass(frozen=True)
class EngineStats:
    """One look at an engine: how it stands, and :class:`Counters` so far. Tokens of cache are 0
    where it keeps no account of them."""

    running: int
    waiting: int
    max_batch: int
    rounds: int
    commits: int
    drafts: int
    accepted: int
    round_drafts: int
    joined: int
    finished: int
    parked: int
    passed: int
    cache_tokens: int = 0
    """In all."""
    cache_claimed: int = 0
    """That requests under way may take."""
    cache_kept: int = 0
    """Of blocks that are kept of earlier requests."""
    cache_hits: int = 0
    """Tokens that requests began with instead of computing them."""
    cache_misses: int = 0
    """Tokens that were prefilled."""


def memory_stats(memory: CacheMemory | None) -> dict[str, int]:
    """The part of :class:`EngineStats` that a memory answers."""
    if memory is None:
        return {}
    return {
        "cache_tokens": memory.tokens,
        "cache_claimed": memory.claimed,
        "cache_kept": memory.kept,
        "cache_hits": memory.num_restored,
        "cache_misses": memory.num_prefilled,
    }
