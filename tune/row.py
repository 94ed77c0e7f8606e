"""What one trial found out, as a row that is written once and read by everybody else."""

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, field_serializer

from decoders.options import DecodeOptions
from tasks.files import write_whole
from tasks.intervals import wilson_interval
from tune.space import option_values

Fidelity = Literal["replay", "live"]
Certificate = Literal["exact", "differs", "approximate"]


class Spread(BaseModel):
    """Median and quartiles."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    median: float
    q25: float
    q75: float


class TrialRow(BaseModel):
    """One trial of one setting. Ratios are to the setting's own draft-free run (same rule, cap,
    temperature and seeds) unless they say ``reference``: standard decoding without a cap. The live
    ``speed`` of a draft-free run is to the reference too.

    ``nfe`` and ``forwards`` are sums over ``n`` problems, counted as contracts.md does (``nfe``
    without prefill). ``seconds`` is what the trial took, ``error`` why it failed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    fidelity: Fidelity
    options: DecodeOptions
    status: Literal["done", "failed"] = "done"
    error: str | None = None
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
    """What most often ends drafting: ``budget``, ``gamma`` (the mass floor), or ``block``."""
    speed: Spread | None = None
    """Tokens/s ratio; over all pairs when live, without spread when estimated from replay."""
    speed_reference: float | None = None
    tokens_per_second: float | None = None
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
    def is_baseline(self) -> bool:
        return not self.options.drafts

    @property
    def rule(self) -> DecodeOptions:
        """The draft-free run that it is compared with."""
        return self.options.draft_free()

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
        return TrialRow.model_validate_json(path.read_text()) if path.exists() else None

    def write(self, row: TrialRow) -> TrialRow:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self.folder / f"{row.key}.json", row.model_dump_json(indent=1) + "\n")
        return row

    def all(self) -> list[TrialRow]:
        """Every finished row, oldest first."""
        paths = sorted(self.folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
        return [TrialRow.model_validate_json(path.read_text()) for path in paths]
