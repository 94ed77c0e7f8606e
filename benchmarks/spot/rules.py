"""The report's tables of draft-free rules: caps, thresholds, and the accuracy of each."""

from collections.abc import Iterable

from benchmarks.spot.cells import (
    cell_name,
    standard_rule,
    sweep_draftings,
    threshold_rule,
    verifications,
)
from benchmarks.spot.found import ACCURACY, CEILINGS, FORWARDS, REPLAYED, Found, Row, Table, counts
from benchmarks.spot.tally import Tally
from decoders.options import DecodeOptions


def capped_table(found: Found) -> Table:
    """Capped order beside threshold decoding at the same values."""
    rows = [
        row
        for task in found.config.tasks
        for cap in found.config.sweeps.caps
        for row in [*_cap_rows(found, task, cap), *_threshold_rows(found, task, cap)]
    ]
    note = (
        "T=0. value: cap of the commit order (1 is standard decoding), or tau of threshold "
        f"decoding. {FORWARDS} factor_standard: NFE of standard decoding without a cap over the "
        "row's. Only draft-free rows have an accuracy; a lossless method's is that of its rule. "
        f"{CEILINGS} {ACCURACY} certificate: `baseline` is a rule's own draft-free run; threshold "
        f"decoding is `approximate` to standard decoding. {REPLAYED}"
    )
    keys = ("task", "rule", "value", "method", "budget")
    return Table("capped", "Capped order and threshold decoding", keys, rows, note)


def _cap_rows(found: Found, task: str, cap: float) -> Iterable[Row]:
    rule = standard_rule(found.config, cap=cap)
    name = {"task": task, "rule": "capped", "value": cap}
    yield name | _rule_row(found, task, rule) | {"certificate": "baseline"}
    base = found.first(task, rule)
    for drafting in sweep_draftings(found.config):
        own = found.first(task, rule, drafting)
        made = {"method": drafting.row, "budget": drafting.budget} | counts(own, base)
        yield name | made | _to_standard(found, task, own) | {"certificate": "replayed"}


def _threshold_rows(found: Found, task: str, tau: float) -> Iterable[Row]:
    if tau < 1:
        name = {"task": task, "rule": "threshold", "value": tau}
        row = _rule_row(found, task, threshold_rule(found.config, tau))
        yield name | row | {"certificate": "approximate"}


def _rule_row(found: Found, task: str, rule: DecodeOptions) -> Row:
    """A draft-free run against itself, with its accuracy."""
    own = found.first(task, rule)
    row = {"method": "draft-free", "budget": 0} | counts(own, own) | _to_standard(found, task, own)
    return row | found.accuracy(task, rule, found.config.sweeps.problems)


def _to_standard(found: Found, task: str, own: Tally) -> Row:
    return {"factor_standard": found.first(task, standard_rule(found.config)).nfe / own.nfe}


def accuracy_table(found: Found) -> Table:
    """Every draft-free rule that was recorded."""
    config = found.config
    rules = {
        cell_name("", rule): rule
        for rule in [
            *(standard_rule(config, t) for t in (0.0, *config.main.temperatures)),
            *(
                standard_rule(config, t, coupled=coupled)
                for t in config.sweeps.temperatures
                for coupled in verifications(t)
            ),
            *(standard_rule(config, cap=cap) for cap in config.sweeps.caps),
            *(threshold_rule(config, tau) for tau in config.sweeps.caps if tau < 1),
        ]
    }
    rows = [
        {"task": task, "rule": name.removeprefix("-"), "n": len(found.correct[task + name])}
        | found.accuracy(task, rule)
        for task in config.tasks
        for name, rule in rules.items()
    ]
    note = f"Draft-free runs as recorded; the baseline is standard decoding at T=0. {ACCURACY}"
    return Table("accuracy", "Accuracy of the draft-free rules", ("task", "rule"), rows, note)
