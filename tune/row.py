"""What one trial found out, as a row that is written once and read by everybody else."""

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, field_serializer

from benchmarks.interval import product_interval
from decoders.options import DecodeOptions
from tasks.intervals import wilson_interval
from tasks.whole import read_back, write_whole
from tune.space import option_values

Fidelity = Literal["replay", "live"]
Certificate = Literal["exact", "differs", "approximate"]


Status = Literal["done", "failed", "stopped"]


class Spread(BaseModel):
    """Median, quartiles, and the 95 % interval of the median where there are enough values."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    median: float
    q25: float
    q75: float
    low: float | None = None
    high: float | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        return None if self.low is None or self.high is None else (self.low, self.high)


def over_standard(own: Spread, baseline: Spread | None) -> tuple[float, float] | None:
    """95 % interval of ``own``, a ratio to a run whose ratio to standard decoding is ``baseline``
    (none: that run is standard decoding); none where one of them has too few values, or where an
    answer without a token makes a ratio of 0."""
    if baseline is None:
        return own.interval
    both = [(s.low, s.median, s.high) for s in (own, baseline) if s.low and s.high is not None]
    return product_interval(*both) if len(both) == 2 else None


class TrialRow(BaseModel):
    """One trial of one setting. Ratios are to the setting's own draft-free run (same rule, cap,
    temperature and seeds) unless they say ``reference``: standard decoding without a cap. The live
    ``speed`` of a draft-free run is to the reference too.

    ``nfe`` and ``forwards`` are sums over ``n`` problems, counted as contracts.md does (``nfe``
    without prefill). The trial began at ``started`` (seconds since 1970) and took ``seconds``;
    ``error`` is why it failed, or was stopped before its end.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    fidelity: Fidelity
    options: DecodeOptions
    status: Status = "done"
    error: str | None = None
    lost: bool = False
    """Failed only because the cluster had no place for it any more: a resumed sweep tries again."""
    started: float = 0.0
    seconds: float = 0.0
    n: int = 0
    nfe: int | None = None
    forwards: int | None = None
    nfe_factor: float | None = None
    nfe_factor_reference: float | None = None
    tokens_per_forward: float | None = None
    accepted_per_round: float | None = None
    drafts_per_round: float | None = None
    drafting_ends: str | None = None
    """What most often ends drafting: ``budget``, ``gamma`` (the mass floor, or simsd's length),
    ``prune``, or ``block``."""
    speed: Spread | None = None
    """Tokens/s ratio; over all pairs when live, without spread when estimated from replay."""
    baseline_speed: Spread | None = None
    """That of its own draft-free run to the reference, where that is another run and was live."""
    speed_reference: float | None = None
    tokens_per_second: float | None = None
    latency_p95: float | None = None
    """Seconds that 95 % of the answers took at most."""
    node: str | None = None
    """Where it ran, when live: Ray's id of the node."""
    passes: int | None = None
    """How often the problems were decoded, when live."""
    certificate: Certificate | None = None
    num_different: int | None = None
    """Outputs that were not the draft-free ones."""
    margin: float | None = None
    """Log-odds margin of the draft-free choice at the first divergence."""
    correct: dict[str, bool] = {}
    """Problem id to whether its reply was right."""

    @field_serializer("options")
    def _known_options(self, options: DecodeOptions) -> dict[str, Any]:
        return option_values(options)  # others would be refused when the row is read again

    @property
    def done(self) -> bool:
        return self.status == "done"

    @property
    def speed_interval(self) -> tuple[float, float] | None:
        """95 % interval of the speed-up over standard decoding: what is not known of the pairs, and
        of their draft-free run's own speed-up."""
        if self.speed is None or self.speed_reference is None:
            return None
        if self.baseline_speed is None:
            found, scale = self.speed.interval, self.speed_reference / (self.speed.median or 1.0)
            return found and (scale * found[0], scale * found[1])
        return over_standard(self.speed, self.baseline_speed)

    @property
    def is_baseline(self) -> bool:
        return not self.options.drafts

    @property
    def rule(self) -> DecodeOptions:
        """The draft-free run that it is compared with."""
        return self.options.draft_free()

    def speed_to(self, reference: DecodeOptions) -> Spread | None:
        """Of a draft-free row: its ratio to the reference; none for the reference itself."""
        return None if self.options == reference else self.speed

    @property
    def accuracy(self) -> float | None:
        return sum(self.correct.values()) / len(self.correct) if self.correct else None

    @property
    def accuracy_interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval."""
        return wilson_interval(sum(self.correct.values()), len(self.correct))


class TrialRows:
    """A folder of finished rows, one file each; a row stands whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, key: str) -> TrialRow | None:
        """The finished row of that key."""
        path = self.folder / f"{key}.json"
        return _read(path) if path.exists() else None

    def write(self, row: TrialRow) -> TrialRow:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self.folder / f"{row.key}.json", row.model_dump_json(indent=1) + "\n")
        return row

    def forget_lost(self) -> None:
        """Take away the rows that are to be tried again."""
        for row in self.all():
            if row.lost:
                (self.folder / f"{row.key}.json").unlink()

    def all(self) -> list[TrialRow]:
        """Every finished row, oldest first."""
        paths = sorted(self.folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
        return [_read(path) for path in paths]


def _read(path: Path) -> TrialRow:
    """The row in a file; ``ValueError`` names one that is damaged."""
    remedy = "move it away, and a resumed sweep runs that trial again"
    return read_back(path, TrialRow.model_validate_json, remedy)
