"""What one job came to, seen from its stream of deltas: for metrics, lines and traces."""

import time
from dataclasses import dataclass, field
from typing import Any, Literal

from actors.ticket import Delta
from decoders.request import Request, Result

Ending = Literal["finished", "cancelled", "failed"]


@dataclass
class Account:
    """Grows with a job; ``ending`` stays ``cancelled`` unless it ends in another way."""

    requests: tuple[Request, ...]
    started: float = field(default_factory=time.perf_counter)
    begun: float = field(default_factory=time.time)
    """In seconds since the epoch."""
    first_text: float | None = None
    """Seconds to the first text of any choice."""
    seconds: float = 0.0
    num_tokens: int = 0
    results: dict[int, Result] = field(default_factory=dict)
    ended: dict[int, float] = field(default_factory=dict)
    """When each result came, in seconds from the start."""
    texts: list[str] = field(default_factory=list)
    ending: Ending = "cancelled"
    error: str | None = None

    def __post_init__(self) -> None:
        self.texts = [""] * len(self.requests)

    def see(self, index: int, delta: Delta) -> None:
        """Take in what choice ``index`` has got."""
        if delta.text and self.first_text is None:
            self.first_text = time.perf_counter() - self.started
        self.num_tokens += len(delta.token_ids)
        self.texts[index] += delta.text
        if delta.result is not None:
            self.results[index] = delta.result
            self.ended[index] = time.perf_counter() - self.started

    def close(self) -> None:
        """Stop the clock."""
        self.seconds = time.perf_counter() - self.started

    @property
    def nfe(self) -> int:
        return sum(result.nfe for result in self.results.values())

    def facts(self) -> dict[str, Any]:
        """What a line or a trace says of it, without any text."""
        first = self.requests[0]
        facts: dict[str, Any] = {
            "decode": first.options.method,
            "answers": len(self.requests),
            "prompt_tokens": sum(len(request.prompt_ids) for request in self.requests),
            "completion_tokens": self.num_tokens,
            "nfe": self.nfe,
            "first_text_seconds": None if self.first_text is None else round(self.first_text, 6),
            "ending": self.ending,
            "stop_reasons": [self.results[i].stop_reason for i in sorted(self.results)],
        }
        return facts if self.error is None else facts | {"error": self.error}
