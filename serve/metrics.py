"""Prometheus metrics of one replica. ``serve/grafana.json`` shows them."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from actors.engine_stats import EngineStats
from decoders.request import Result
from serve.account import Account
from serve.config import ServeConfig
from serve.engine_metrics import EngineCollector

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_RATES = (1.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 5000.0)
_PER_TOKEN = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
_DRAFTS = (0.0, 1.0, 2.0, 4.0, 8.0, 12.0, 16.0, 20.0, 32.0, 64.0, 128.0, 256.0)

COUNTERS = {
    "prompt_tokens": "Tokens of prompts, once for every answer",
    "completion_tokens": "Tokens of answers",
    "commits": "Positions that were filled",
    "nfe": "Target forwards (open, step, verify)",
    "drafts": "Drafts that were verified",
    "drafts_accepted": "Drafts that were accepted",
    "cached_prompt_tokens": "Tokens of prompts that earlier requests left, once for every answer",
}
HISTOGRAMS = {
    "time_to_first_text_seconds": ("From a job's start to its first text", _SECONDS),
    "job_seconds": ("From a job's start to its end", _SECONDS),
    "answer_tokens_per_second": ("Of an answer, from joining the batch to its end", _RATES),
    "answer_nfe_per_token": ("Target forwards a committed token, of an answer", _PER_TOKEN),
    "round_drafts": ("Drafts of a forward that verifies some", _DRAFTS),
}


class Metrics:
    """Counts what an endpoint does; every label has few values."""

    def __init__(self, config: ServeConfig) -> None:
        registry = self.registry = CollectorRegistry()
        labels = ["model", "method", "certificate"]
        said = "What is served; always 1"
        self._model = Gauge("maskahead_model_info", said, labels, registry=registry)
        said, labels = "HTTP requests", ["route", "status"]
        self._requests = Counter("maskahead_requests", said, labels, registry=registry)
        said, labels = "Completions and chats by how they ended", ["method", "ending"]
        self._jobs = Counter("maskahead_jobs", said, labels, registry=registry)
        said = "Whether the target answers"
        self._ready = Gauge("maskahead_target_ready", said, registry=registry)
        self._engine = EngineCollector()
        registry.register(self._engine)
        self._counters = {
            name: Counter(f"maskahead_{name}", text, ["method"], registry=registry)
            for name, text in COUNTERS.items()
        }
        self._histograms = {
            name: Histogram(
                f"maskahead_{name}", text, ["method"], buckets=buckets, registry=registry
            )
            for name, (text, buckets) in HISTOGRAMS.items()
        }
        self.served(config)

    def served(self, config: ServeConfig) -> None:
        """Say what is served from now on."""
        self._model.clear()
        certificate = config.stated_certificate or "none"
        self._model.labels(config.model_name, config.decode.method, certificate).set(1)

    def requested(self, route: str, status: int) -> None:
        """Count an HTTP request."""
        self._requests.labels(route, str(status)).inc()

    def finished(self, account: Account) -> None:
        """Take in a job that has ended, in whatever way."""
        method = account.requests[0].options.method
        self._jobs.labels(method, account.ending).inc()
        self._observe(method, "job_seconds", account.seconds)
        if account.first_text is not None:
            self._observe(method, "time_to_first_text_seconds", account.first_text)
        prompts = sum(len(request.prompt_ids) for request in account.requests)
        self._count(method, "prompt_tokens", prompts)
        self._count(method, "completion_tokens", account.num_tokens)
        for result in account.results.values():
            self._answered(method, result)

    def _answered(self, method: str, result: Result) -> None:
        self._count(method, "commits", result.commits)
        self._count(method, "nfe", result.nfe)
        self._count(method, "cached_prompt_tokens", result.cache_hits)
        if result.commits:
            rate = len(result.token_ids) / result.seconds
            self._observe(method, "answer_tokens_per_second", rate)
            self._observe(method, "answer_nfe_per_token", result.nfe / result.commits)
        for round in result.rounds:
            if round.kind == "verify":
                self._observe(method, "round_drafts", round.drafts)
                self._count(method, "drafts", round.drafts)
                self._count(method, "drafts_accepted", round.accepted)

    def page(self, stats: EngineStats | None) -> bytes:
        """The metrics as Prometheus reads them, with the engine's ``stats`` of this moment
        (``None``: the target does not answer)."""
        self._ready.set(stats is not None)
        self._engine.stats = stats
        return generate_latest(self.registry)

    def _count(self, method: str, name: str, number: int) -> None:
        self._counters[name].labels(method).inc(number)

    def _observe(self, method: str, name: str, value: float) -> None:
        self._histograms[name].labels(method).observe(value)
