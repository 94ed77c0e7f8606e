"""What the batching engine counts itself, as Prometheus reads it.

The counts of :mod:`serve.metrics` are taken when a job ends and carry its method; the engine's are
taken in every round, so they include work for answers that nobody waited for.
"""

from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from actors.engine_stats import EngineStats

GAUGES = {
    "batch_size": ("running", "Answers in the batch"),
    "batch_limit": ("max_batch", "Most answers that the batch takes"),
    "queue_length": ("waiting", "Answers that wait for a place in the batch"),
    "engine_round_drafts": ("round_drafts", "Drafts of the last round, of all answers together"),
    "cache_tokens": ("cache_tokens", "Tokens that the prefix cache has room for; 0: no limit"),
    "cache_claimed_tokens": ("cache_claimed", "Tokens of it that answers under way may take"),
    "cache_kept_tokens": ("cache_kept", "Tokens of it in blocks kept of earlier requests"),
}
"""By name: the field of :class:`EngineStats`, and what it is."""
COUNTERS = {
    "engine_rounds": ("rounds", "Rounds of the batch, however many answers share one"),
    "engine_commits": ("commits", "Positions that were filled"),
    "engine_drafts": ("drafts", "Drafts that rode along"),
    "engine_drafts_accepted": ("accepted", "Drafts that were accepted"),
    "engine_joined": ("joined", "Times that an answer joined the batch, after parking too"),
    "engine_finished": ("finished", "Answers that came to their end"),
    "engine_parked": ("parked", "Times that an answer was parked because the cache was full"),
    "engine_passed": ("passed", "Times that an answer was passed by one that came later"),
    "cache_hit_tokens": ("cache_hits", "Tokens that prefixes began with instead of a prefill"),
    "cache_miss_tokens": ("cache_misses", "Tokens that were prefilled"),
}
"""As ``GAUGES``; they begin at zero whenever the engine does."""


class EngineCollector(Collector):
    """Reads ``stats``, the last look at the engine; it has no samples while there is none."""

    def __init__(self) -> None:
        self.stats: EngineStats | None = None

    def collect(self) -> Iterator[Metric]:
        if self.stats is None:
            return
        for name, (field, text) in GAUGES.items():
            yield GaugeMetricFamily(f"maskahead_{name}", text, getattr(self.stats, field))
        for name, (field, text) in COUNTERS.items():
            yield CounterMetricFamily(f"maskahead_{name}", text, getattr(self.stats, field))
