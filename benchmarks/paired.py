"""``maskahead bench``: methods side by side on the same prompts, interleaved and paired.

Every method decodes every batch of prompts, in turn, ``repeats`` times; ratios compare a method
with the baseline on the same batch in the same repeat, so that drift of the machine falls out.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from actors.runner import Runner, open_runner
from benchmarks.certificate import Certificate, Row, certify
from benchmarks.machine import machine, versions
from decoders.options import GAMMA_OF, METHODS, OPTIONS_OF, ORACLES, DecodeOptions, takes
from decoders.prompts import PromptRow
from decoders.trace import Trace
from drafters.config import DrafterConfig
from models.config import TargetConfig
from models.digests import digest
from tasks.files import read_prompts
from tasks.whole import write_whole

BASELINE, THRESHOLD = "standard", "threshold"
EXACT_SETS = "sets-exact"


@dataclass(frozen=True)
class BenchPlan:
    """What is measured: ``shared`` holds decoding options, of which each method takes its own."""

    target: TargetConfig
    drafter: DrafterConfig
    shared: Mapping[str, Any]
    methods: tuple[str, ...]
    prompts: Path
    repeats: int
    command: str

    def options(self) -> dict[str, DecodeOptions]:
        """Options by name, the baseline first; ``ValueError`` for a key that none knows.

        ``sets`` brings threshold decoding, its baseline, and a lossy rule of it brings the exact
        one, as ``sets-exact``.
        """
        for method in self.methods:
            if method not in METHODS:
                raise ValueError(f"--methods: {method!r} must be of {', '.join(METHODS)}")
        over = (THRESHOLD,) if "sets" in self.methods else ()
        methods = dict.fromkeys((BASELINE, *over, *self.methods))
        known = set().union(*(OPTIONS_OF[method] for method in methods)) - {"method"}
        unknown = sorted(
            key
            for key, value in self.shared.items()
            if key == "method" or not any(takes(method, key, value) for method in methods)
        )
        if unknown and unknown[0] == "gamma" and "gamma" in known:
            theirs = " ".join(f"{m}: {GAMMA_OF[m]}." for m in methods if m in GAMMA_OF)
            raise ValueError(f"decode.gamma {self.shared['gamma']}: it fits no method. {theirs}")
        if unknown:
            raise ValueError(
                f"decode.{unknown[0]} is not an option of {', '.join(methods)}; valid: "
                f"{', '.join(sorted(known))}"
            )
        found = {m: DecodeOptions.lenient(**{**self.shared, "method": m}) for m in methods}
        if "sets" in found and not found["sets"].lossless:
            found[EXACT_SETS] = found["sets"].model_copy(update={"rule": "exact"})
        return found


@dataclass
class Measured:
    """One method's rows (of the first repeat), tokens ``[batch]`` (of any repeat), seconds
    ``[repeat][batch]`` and peak bytes."""

    rows: list[Row] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    seconds: list[list[float]] = field(default_factory=list)
    peak: int = 0

    @property
    def nfe(self) -> int:
        return sum(row["nfe"] for row in self.rows)


def run_bench(plan: BenchPlan, report: Callable[[int, int], None]) -> dict[str, Any]:
    """Measure, compare and describe: the report of contracts.md (``bench``)."""
    file = read_prompts(plan.prompts)
    if not file.rows:
        raise ValueError(f"prompts {plan.prompts}: no rows")
    options = plan.options()
    methods = {each.method for each in options.values()}
    with open_runner(plan.target, plan.drafter, methods) as runner:
        for each in options.values():
            file.check(each, runner.spec, runner.codec)
        measured = measure(runner, file.rows, options, plan.repeats, report)
        certificates = {
            name: _certify(runner, file.rows, options[name], measured, name) for name in options
        }
        facts = _describe(plan, runner)
    baselines = {
        name: THRESHOLD if each.method == "sets" else BASELINE for name, each in options.items()
    }
    return facts | {
        "prompts": {"path": str(plan.prompts), "digest": file.digest, "n": len(file.rows)},
        "methods": {
            name: summarize(measured[name], measured[baselines[name]], certificates[name])
            | {"baseline": baselines[name]}
            for name in options
        },
    }


def measure(
    runner: Runner,
    rows: Sequence[PromptRow],
    options: Mapping[str, DecodeOptions],
    repeats: int,
    report: Callable[[int, int], None],
) -> dict[str, Measured]:
    """Decode every batch with every method, ``repeats`` times, the order of methods rotating."""
    size = next(iter(options.values())).batch_size
    batches = [rows[start : start + size] for start in range(0, len(rows), size)]
    methods = list(options)
    measured = {method: Measured() for method in methods}
    for method in methods:
        # Warm-up: caches, threads, kernels; oracles see the future of every batch outside the time.
        for batch in batches if method in ORACLES else batches[:1]:
            list(runner.decode(batch, options[method], False))
    for repeat in range(repeats):
        for method in methods:
            measured[method].seconds.append([])
        for index, batch in enumerate(batches):
            shift = (repeat + index) % len(methods)
            for method in methods[shift:] + methods[:shift]:
                _measure_batch(runner, batch, options[method], measured[method], repeat)
            report(repeat * len(batches) + index + 1, repeats * len(batches))
    return measured


def _measure_batch(
    runner: Runner, batch: Sequence[PromptRow], options: DecodeOptions, into: Measured, repeat: int
) -> None:
    runner.reset_peak_memory()
    started = perf_counter()
    found = {row["id"]: row for row in runner.decode(batch, options, True)}
    into.seconds[repeat].append(perf_counter() - started)
    into.peak = max(into.peak, runner.peak_memory())
    if repeat == 0:
        into.rows += [found[row.id] for row in batch]
        into.tokens.append(sum(len(row["token_ids"]) for row in found.values()))


def _certify(
    runner: Runner,
    rows: Sequence[PromptRow],
    options: DecodeOptions,
    measured: Mapping[str, Measured],
    name: str,
) -> Certificate:
    draft_free = options.draft_free()

    def trace_of(index: int) -> Trace:
        return next(runner.record([rows[index]], draft_free))

    own, base = measured[name].rows, measured[draft_free.method].rows
    return certify(options, own, base, trace_of)


def summarize(own: Measured, base: Measured, certificate: Certificate) -> dict[str, Any]:
    """One method's numbers; ratios above 1 are better than the baseline. ``ratio`` is that of
    tokens/s: where texts differ, one that ends early is no faster for it."""
    seconds, baseline = np.array(own.seconds), np.array(base.seconds)
    gains = [
        ours / theirs if theirs else 1.0
        for ours, theirs in zip(own.tokens, base.tokens, strict=True)
    ]
    verified = [r["accepted"] for row in own.rows for r in row["rounds"] if r["kind"] == "verify"]
    commits = sum(
        len({p for r in row["rounds"] for s in r["steps"] for p, _ in s}) for row in own.rows
    )
    return {
        "n": len(own.rows),
        "nfe": own.nfe,
        "forwards": sum(row["forwards"] for row in own.rows),
        "nfe_ratio": _ratio(base.nfe, own.nfe),
        "tokens_per_forward": _ratio(commits, own.nfe),
        "accepted_per_round": _ratio(sum(verified), len(verified)),
        "seconds": quartiles(seconds),
        "tokens_per_second": _ratio(sum(own.tokens), float(np.median(seconds, axis=0).sum())),
        "ratio": quartiles(np.array(gains) * baseline / seconds),
        "equal": certificate.equal,
        "certificate": certificate.kind,
        "divergence_margin": certificate.margin,
        "peak_memory_bytes": own.peak,
    }


def quartiles(values: np.ndarray | Sequence[float]) -> dict[str, float]:
    """Median and quartiles of all values."""
    q25, median, q75 = np.percentile(values, (25, 50, 75))
    return {"median": float(median), "q25": float(q25), "q75": float(q75)}


def _ratio(a: float, b: float) -> float | None:
    return round(a / b, 4) if b else None


def _describe(plan: BenchPlan, runner: Runner) -> dict[str, Any]:
    facts = {"digest": digest(runner.folder), "parameters": runner.spec.num_parameters}
    return {
        "command": plan.command,
        "versions": versions(),
        "machine": machine(),
        "target": plan.target.model_dump() | {"block_size": runner.spec.block_size} | facts,
        "settings": {
            "decode": dict(plan.shared),
            "drafter": plan.drafter.model_dump(),
            "repeats": plan.repeats,
        },
    }


def table_rows(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What a reader compares first, one row a method."""
    return [
        {
            "method": method,
            "NFE": facts["nfe"],
            "factor": facts["nfe_ratio"],
            "tok/s": facts["tokens_per_second"],
            "speed-up": _spread(facts["ratio"]),
            "accepted": facts["accepted_per_round"],
            "certificate": f"{facts['certificate']} {facts['equal']}/{facts['n']}",
            "MB": round(facts["peak_memory_bytes"] / 1e6),
        }
        for method, facts in report["methods"].items()
    ]


def _spread(ratio: Mapping[str, float]) -> str:
    return f"{ratio['median']:.2f} [{ratio['q25']:.2f} {ratio['q75']:.2f}]"


def check_out(out: Path) -> None:
    """Make the report's folder; ``ValueError``, before anything is measured, where it cannot be
    written."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--out {out}: {error.filename}: {error.strerror}") from error
    if out.is_dir() or not os.access(out.parent, os.W_OK):
        raise ValueError(f"--out {out} must be a file that can be written")


def write_report(report: Mapping[str, Any], out: Path) -> None:
    """The report as JSON."""
    out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(out, json.dumps(report, indent=2) + "\n")
