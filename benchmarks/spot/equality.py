"""Do many copies in one forward compute what one alone does? In low precision not always, since
other shapes round otherwise; a near tie then falls the other way, and the outputs part."""

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any

from actors.runner import Runner
from benchmarks.certificate import certify
from benchmarks.spot.cells import Drafting
from benchmarks.spot.found import Found, Row, Table
from decoders.options import DecodeOptions
from decoders.prompts import PromptRow
from decoders.trace import Trace
from tasks.intervals import wilson_interval

EqualityRows = list[dict[str, Any]]
"""For every cap and budget: how many outputs equal those of the draft-free run, and how the others
differ."""


def measure_equality(
    runner: Runner,
    rows: Sequence[PromptRow],
    rules: Sequence[DecodeOptions],
    budgets: Sequence[int],
    report: Callable[[int, int], None],
) -> EqualityRows:
    """Chains, which need no model, beside draft-free decoding, one request at a time."""
    found: EqualityRows = []
    for rule in rules:
        base = list(runner.decode(rows, rule, True))
        for budget in budgets:
            options = Drafting("chain", budget).over(rule)
            own = list(runner.decode(rows, options, True))

            def trace_of(index: int, rule: DecodeOptions = rule) -> Trace:
                return next(runner.record([rows[index]], rule))

            certificate = certify(options, own, base, trace_of)
            shares = [
                shared(a["token_ids"], b["token_ids"]) for a, b in zip(own, base, strict=True)
            ]
            found.append(
                {
                    "cap": rule.cap,
                    "budget": budget,
                    "n": len(rows),
                    "equal": certificate.equal,
                    "margin": certificate.margin,
                    "shared": sum(shares) / len(shares),
                }
            )
            report(len(found), len(rules) * len(budgets))
    return found


def shared(own: Sequence[int], base: Sequence[int]) -> float:
    """The share of the longer output that stands before the first difference."""
    same = takewhile(lambda pair: pair[0] == pair[1], zip(own, base, strict=False))
    longest = max(len(own), len(base))
    return len(list(same)) / longest if longest else 1.0


def equality_table(found: Found) -> Table:
    """Outputs of single and of many copies, by dtype, with and without a cap."""
    rows: list[Row] = []
    for (task, dtype), measured in found.equality.items():
        for facts in measured:
            low, high = wilson_interval(facts["equal"], facts["n"])
            row: Row = {"task": task, "dtype": dtype}
            row |= {name: facts[name] for name in ("cap", "budget", "n")}
            row |= {"equal": facts["equal"] / facts["n"], "equal_low": low, "equal_high": high}
            rows.append(row | {name: facts[name] for name in ("shared", "margin")})
    note = (
        "T=0, live: a chain of up to `budget` drafts, whose forwards hold many copies of the "
        "block, beside draft-free decoding, whose forwards hold one; both of the same cap and in "
        "the same dtype. equal: equal outputs of n, with Wilson's 95 % interval; shared: mean "
        "share of an output before the first difference; margin: the smallest log-odds margin at "
        "a first difference, where there is one. The certificate is the count itself."
    )
    return Table(
        "equality", "One copy against many", ("task", "dtype", "cap", "budget"), rows, note
    )
