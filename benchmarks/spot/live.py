"""The main table's rows on the target itself: interleaved with draft-free decoding, compared with
it output by output, and with the replay's forwards."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from actors.runner import Runner
from benchmarks.certificate import Certificate, certify
from benchmarks.machine import machine
from benchmarks.paired import BASELINE, Measured, measure, summarize
from benchmarks.spot.cells import Drafting
from decoders.options import ORACLES, DecodeOptions
from decoders.prompts import PromptRow
from decoders.trace import Trace

LiveRows = dict[str, dict[str, Any]]
"""By label of the drafting (``standard`` for the baseline): the facts of ``maskahead bench``,
the forwards of every problem, and the machine's load average when all was measured."""


def measure_live(
    runner: Runner,
    rows: Sequence[PromptRow],
    rule: DecodeOptions,
    draftings: Sequence[Drafting],
    repeats: int,
    report: Callable[[int, int], None],
) -> LiveRows:
    """Decode ``rows`` with every drafting over ``rule``, one request at a time."""
    options = {BASELINE: rule} | {d.label: d.over(rule) for d in draftings}
    teach_oracles(runner, rows, options)
    measured = measure(runner, rows, options, repeats, report)
    base = measured[BASELINE]
    found: LiveRows = {}
    for label, each in options.items():
        certificate = certify_rows(runner, rows, each, measured[label], base)
        found[label] = summarize(measured[label], base, certificate)
        found[label]["nfe_by_problem"] = {row["id"]: row["nfe"] for row in measured[label].rows}
        found[label]["load_average"] = machine()["load_average"]
    return found


def teach_oracles(
    runner: Runner, rows: Sequence[PromptRow], options: Mapping[str, DecodeOptions]
) -> None:
    """Let oracles see the draft-free runs before any clock runs; they know them for all budgets."""
    for oracle in {o.method: o for o in options.values() if o.method in ORACLES}.values():
        list(runner.decode(rows, oracle, False))


def certify_rows(
    runner: Runner,
    rows: Sequence[PromptRow],
    options: DecodeOptions,
    own: Measured,
    base: Measured,
) -> Certificate:
    """Outputs compared with those of the draft-free run."""

    def trace_of(index: int) -> Trace:
        return next(runner.record([rows[index]], options.draft_free()))

    return certify(options, own.rows, base.rows, trace_of)
