"""All that was measured, and what its tables share: columns and the words that explain them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.paired import quartiles
from benchmarks.spot.cells import Drafting, cell_name, standard_rule
from benchmarks.spot.config import SpotConfig
from benchmarks.spot.live import LiveRows
from benchmarks.spot.replaying import Replayed
from benchmarks.spot.scoring import Correct, accuracy
from benchmarks.spot.tally import Tally
from decoders.options import DecodeOptions

Row = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """Rows with the same columns; ``keys`` are those that name a row. ``note`` says how its numbers
    are counted, over which baseline, with which spread, and what certifies them."""

    name: str
    title: str
    keys: tuple[str, ...]
    rows: Sequence[Row]
    note: str


@dataclass(frozen=True)
class Found:
    """All that was measured, by the names of cells; ``depths`` by depth, only of T=0."""

    config: SpotConfig
    replayed: Mapping[str, Replayed]
    correct: Mapping[str, Correct]
    depths: Mapping[str, Mapping[str, Mapping[str, float]]]
    live: Mapping[str, LiveRows]
    equality: Mapping[tuple[str, str], Sequence[Row]] = field(default_factory=dict)
    """By task and dtype."""

    def tally(self, task: str, rule: DecodeOptions, drafting: Drafting | None = None) -> Tally:
        """Of a setting, or of its draft-free run."""
        return self.replayed[cell_name(task, rule)].tallies[drafting]

    def first(self, task: str, rule: DecodeOptions, drafting: Drafting | None = None) -> Tally:
        """Of the problems that the sweeps share."""
        tally = self.tally(task, rule, drafting)
        return tally.first([p.id for p in tally.problems[: self.config.sweeps.problems]])

    def accuracy(self, task: str, rule: DecodeOptions, most: int | None = None) -> Row:
        """Columns of a draft-free rule's accuracy; the reference is standard decoding at T=0."""
        correct = self.correct[cell_name(task, rule)]
        own = dict(list(correct.items())[:most])
        found = accuracy(own, self.correct[cell_name(task, standard_rule(self.config))])
        return {
            "accuracy": found.share,
            "accuracy_low": found.low,
            "accuracy_high": found.high,
            "difference": found.difference,
            "difference_low": found.difference_low,
            "difference_high": found.difference_high,
        }


FORWARDS = (
    "NFE: forwards of the target without prefill, summed over the n problems, replayed from "
    "recorded draft-free traces. nfe_factor: NFE of the draft-free run of the same rule (same cap, "
    "temperature, verification, seeds) over the method's; q25, q75: quartiles over the problems. "
    "accepted_per_round: over forwards with drafts; drafts_per_round: over all rounds but a "
    "block's first."
)
CEILINGS = "Oracles know the future: ceilings, not methods."
REPLAYED = (
    "Certificate: replay follows the draft-free outputs by construction; they are compared with "
    "decoded ones in table `live`, on its few prompts."
)
ACCURACY = (
    "accuracy: right recorded replies of n, with Wilson's 95 % interval; difference: to standard "
    "decoding at T=0 without a cap on the same problems, with the paired 95 % interval."
)


def counts(own: Tally, base: Tally) -> Row:
    """Columns that every replayed setting has."""
    ratios = [b.nfe / o.nfe for o, b in zip(own.problems, base.problems, strict=True)]
    spread = quartiles(ratios)
    return {
        "n": len(own.problems),
        "nfe_draft_free": base.nfe,
        "nfe": own.nfe,
        "nfe_factor": base.nfe / own.nfe,
        "nfe_factor_q25": spread["q25"],
        "nfe_factor_q75": spread["q75"],
        "accepted_per_round": own.accepted_per_round,
        "drafts_per_round": own.drafts_per_round,
    }


def what_if(found: Found, own: Tally, base: Tally, drafting: Drafting) -> float:
    """Priced tokens/s over the draft-free run's, by the configuration's assumption."""
    assumed = found.config.what_if
    drafter = assumed.drafter if drafting.method == "order" else 0.0
    cost = own.cost(assumed.curve.at) + own.asked * drafter
    return base.cost(assumed.curve.at) / cost


def named(task: str, drafting: Drafting, **more: Any) -> Row:
    """The columns that name a drafting over a task."""
    return {"task": task, **more, "method": drafting.row, "budget": drafting.budget}
