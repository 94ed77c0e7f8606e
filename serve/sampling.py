"""A share of all requests as MLflow traces, written by a thread of its own."""

import logging
import queue
import random
import threading
from collections.abc import Callable

from cluster.tracking.traces import RequestTrace, RequestTraces, Stretch
from serve.account import Account

log = logging.getLogger("ray.serve")

MOST_WAITING = 256
"""Traces that wait to be written; a store that is slower loses the rest, and no client waits."""


class Sampler:
    """Keeps each job with probability ``ratio``; the store is opened with the first of them."""

    def __init__(self, ratio: float, open_traces: Callable[[], RequestTraces]) -> None:
        self.ratio = ratio
        self._open = open_traces
        self._waiting: queue.Queue[RequestTrace | None] = queue.Queue(MOST_WAITING)
        self._thread: threading.Thread | None = None

    def offer(self, account: Account, prompts: list[str] | None, texts: list[str] | None) -> None:
        """Keep a job that has ended, or do not."""
        if random.random() >= self.ratio:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._main, name="request-traces", daemon=True)
            self._thread.start()
        try:
            self._waiting.put_nowait(trace_of(account, prompts, texts))
        except queue.Full:
            log.warning("a request trace was dropped: the store is slower than the requests")

    def close(self) -> None:
        """Write what waits, and end."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
            self._thread = None

    def _main(self) -> None:
        traces: RequestTraces | None = None
        while (trace := self._waiting.get()) is not None:
            try:
                traces = traces or self._open()
                traces.log(trace)
            except Exception as error:  # the thread's edge: answers do not depend on the store
                log.error("a request trace was lost", exc_info=error)


def trace_of(account: Account, prompts: list[str] | None, texts: list[str] | None) -> RequestTrace:
    """A job as a trace: the whole of it, and each answer from joining the batch to its end."""
    facts = account.facts()
    begin = account.begun
    answers = [
        Stretch(
            f"answer {index}",
            begin + account.ended[index] - result.seconds,
            begin + account.ended[index],
            {
                "nfe": result.nfe,
                "tokens": len(result.token_ids),
                "tokens_per_forward": round(result.tokens_per_forward, 4),
                "accepted_per_round": round(result.accepted_per_round, 4),
                "stop_reason": result.stop_reason,
            },
        )
        for index, result in sorted(account.results.items())
    ]
    whole = Stretch(f"decode {facts['decode']}", begin, begin + account.seconds, facts)
    return RequestTrace(whole, answers, account.ending == "failed", prompts, texts)
