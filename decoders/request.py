"""A request, the rounds that answered it, and the row that comes out (contracts.md)."""

from dataclasses import dataclass, field
from typing import Any, Literal

from decoders.options import DecodeOptions
from decoders.rules import Step

Kind = Literal["prefill", "open", "step", "verify", "store"]
StopReason = Literal["stop", "length"]
NFE_KINDS = ("open", "step", "verify")
MOST_ALTERNATIVES = 20


@dataclass(frozen=True)
class Request:
    """One prompt with its options; ``noise_seed`` decides every draw at T>0. Of a ``watched`` one
    every round is kept as it was seen (``decoders.sight``)."""

    id: str
    prompt_ids: tuple[int, ...]
    options: DecodeOptions
    noise_seed: int = 0
    watched: bool = False
    top_logprobs: int | None = None
    """How many alternatives, at most ``MOST_ALTERNATIVES``, to tell with each token's
    log-probability; ``None`` tells none."""


@dataclass(frozen=True)
class Round:
    """One target forward as this request saw it; ``steps`` hold absolute positions."""

    kind: Kind
    drafts: int = 0
    accepted: int = 0
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class TokenLogprob:
    """A committed ``token``, its log-probability, and the likeliest tokens of its place with theirs
    in falling order (ties by lowest id); at T=0 the first of them is the token."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Result:
    """A finished request. Counts are per request and do not depend on its batch."""

    request: Request
    token_ids: tuple[int, ...]
    stop_reason: StopReason
    rounds: tuple[Round, ...] = field(repr=False)
    seconds: float
    cache_hits: int = 0
    """Prompt tokens whose keys and values were kept of earlier requests."""

    @property
    def nfe(self) -> int:
        return sum(round.kind in NFE_KINDS for round in self.rounds)

    @property
    def forwards(self) -> int:
        return len(self.rounds)

    @property
    def commits(self) -> int:
        """Positions that were filled; one that was edited counts once."""
        return len({p for round in self.rounds for step in round.steps for p, _ in step})

    @property
    def tokens_per_forward(self) -> float:
        return self.commits / self.nfe if self.nfe else 0.0

    @property
    def accepted_per_round(self) -> float:
        accepted = [round.accepted for round in self.rounds if round.kind == "verify"]
        return sum(accepted) / len(accepted) if accepted else 0.0

    def row(self, text: str | None, trace: bool = False) -> dict[str, Any]:
        """The output row of ``maskahead decode``."""
        row: dict[str, Any] = {
            "id": self.request.id,
            "prompt_ids": list(self.request.prompt_ids),
            "token_ids": list(self.token_ids),
            "text": text,
            "stop_reason": self.stop_reason,
            "nfe": self.nfe,
            "forwards": self.forwards,
            "tokens_per_forward": round(self.tokens_per_forward, 4),
            "accepted_per_round": round(self.accepted_per_round, 4),
            "seconds": round(self.seconds, 6),
        }
        if trace:
            row["rounds"] = [
                {
                    "kind": round.kind,
                    "drafts": round.drafts,
                    "accepted": round.accepted,
                    "steps": [[list(commit) for commit in step] for step in round.steps],
                }
                for round in self.rounds
            ]
        return row
