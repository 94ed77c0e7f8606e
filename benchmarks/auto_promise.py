"""The promise of ``budget: auto``: never slower than draft-free, and near the best fixed setting.

Every prompt is decoded draft-free, with ``auto`` and with fixed settings, in turn; a ratio compares
two runs of one batch that follow each other closely, so that the machine's moods fall out. Cells
are tasks x batch sizes x temperatures x caps. ``oracle allows`` is what a drafter that knew the
order could make of it: the position oracle replayed at its best budget, priced by the same measured
cost of a forward, for batches of one.

    python -m benchmarks.auto_promise --problems 16 --batch-sizes 1,4 --caps 1,0.9 --out a.json
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from actors.loading import open_engine
from actors.runner import Runner, engine_runner
from benchmarks.certificate import certify
from benchmarks.machine import git_commit, machine, versions
from benchmarks.paired import BASELINE, Measured, measure
from benchmarks.spot.tally import tally
from cluster.console import progress, show_table
from decoders.cost_curve import CostCurve
from decoders.engine import Engine
from decoders.options import DecodeOptions
from decoders.prompts import PromptRow
from decoders.proposers.base import Proposer
from decoders.replay import replay
from decoders.trace import Trace
from drafters.config import DrafterConfig
from models.config import TargetConfig
from tasks.bundled import problems
from tasks.files import write_whole

PROBLEM_SEED = 7
ORACLE = "oracle-position"
ORACLE_BUDGETS = (1, 2, 4, 8, 16, 32)
AUTO = "auto"
RESAMPLES = 4000


@dataclass(frozen=True)
class Setting:
    """A method with its budget, and with the order model's mass floor."""

    method: str
    budget: int | str
    gamma: float = 0.0

    @property
    def label(self) -> str:
        floor = f" gamma {self.gamma:g}" if self.gamma else ""
        return f"{self.method} {self.budget}{floor}"

    def over(self, rule: DecodeOptions) -> DecodeOptions:
        values = {"method": self.method, "budget": self.budget, "gamma": self.gamma}
        return DecodeOptions.lenient(**(rule.model_dump() | values))


def settings_of(methods: Iterable[str], budgets: Iterable[int], gamma: float) -> list[Setting]:
    """For each method ``auto``, then fixed budgets; the order model's with a mass floor."""
    found = []
    for method in methods:
        found.append(Setting(method, AUTO))
        floor = gamma if method == "order" else 0.0
        found += [Setting(method, budget, floor) for budget in budgets]
    return found


def median_interval(ratios: np.ndarray, seed: int = 0) -> tuple[float, float, float]:
    """Median of ``ratios [repeats, batches]`` with its 95 % interval, batches resampled whole."""
    draw = np.random.default_rng(seed)
    batches = ratios.shape[1]
    picks = draw.integers(0, batches, (RESAMPLES, batches))
    medians = np.median(ratios[:, picks], axis=(0, 2))
    low, high = np.percentile(medians, (2.5, 97.5))
    return float(np.median(ratios)), float(low), float(high)


def oracle_allows(traces: Sequence[Trace], proposer: Proposer, curve: CostCurve) -> float:
    """The best ratio, over budgets, of draft-free cost to that of the position oracle."""
    rule = traces[0].request.options
    block = len(traces[0].blocks[0].states[0].state)

    def cost(options: DecodeOptions) -> float:
        results = replay(traces, options, proposer if options.drafts else None)
        return tally(results, [], block).cost(curve.at)

    free = cost(rule)
    tried = [
        DecodeOptions.lenient(**(rule.model_dump() | {"method": ORACLE, "budget": budget}))
        for budget in ORACLE_BUDGETS
    ]
    return max(free / cost(options) for options in tried)


def measure_cell(
    engine: Engine,
    runner: Runner,
    rows: Sequence[PromptRow],
    rule: DecodeOptions,
    settings: Sequence[Setting],
    repeats: int,
    report: Callable[[int, int], None],
) -> list[dict[str, Any]]:
    """One row a setting: its ratio to draft-free decoding, and what else the promise names."""
    options = {BASELINE: rule} | {s.label: s.over(rule) for s in settings}
    measured = measure(runner, rows, options, repeats, report)
    base = measured[BASELINE]
    traces = list(runner.record(rows, rule.model_copy(update={"batch_size": 1})))
    allowed = oracle_allows(traces, engine.proposers[ORACLE], engine.auto.curve)
    found = []
    for setting in settings:
        own = measured[setting.label]
        ratios = np.array(base.seconds) / np.array(own.seconds)
        median, low, high = median_interval(ratios)
        found.append(
            {"setting": setting.label, "speed": median, "low": low, "high": high}
            | {"n": len(rows), "nfe_factor": base.nfe / own.nfe, "oracle_allows": allowed}
            | steps_of(engine, setting, options[setting.label])
            | {"certificate": certified(runner, rows, options[setting.label], own, base)}
        )
    for method in {s.method for s in settings}:
        against_best_fixed(found, measured, method)
    return found


def steps_of(engine: Engine, setting: Setting, options: DecodeOptions) -> dict[str, Any]:
    """Of ``auto``: steps of a drafted round, as it expected them and as they came."""
    balance = engine.auto.balance(options)
    if setting.budget != AUTO or not balance.verified:
        return {"expected_steps": None, "measured_steps": None}
    return {
        "expected_steps": 1 + balance.foreseen / balance.verified,
        "measured_steps": 1 + balance.accepted / balance.verified,
    }


def against_best_fixed(
    rows: list[dict[str, Any]], measured: Mapping[str, Measured], method: str
) -> None:
    """Add to the method's ``auto`` row the ratio to its best fixed setting, drafting or not."""
    fixed = [r for r in rows if r["setting"].startswith(method) and not r["setting"].endswith(AUTO)]
    best = max(fixed, key=lambda row: row["speed"], default=None)
    label = best["setting"] if best and best["speed"] > 1 else BASELINE
    for row in rows:
        if row["setting"] == f"{method} {AUTO}":
            own, other = (np.array(measured[name].seconds) for name in (row["setting"], label))
            row["best_fixed"] = label
            row["to_best_fixed"] = float(np.median(other / own))


def certified(
    runner: Runner,
    rows: Sequence[PromptRow],
    options: DecodeOptions,
    own: Measured,
    base: Measured,
) -> str:
    def trace_of(index: int) -> Trace:
        return next(runner.record([rows[index]], options.draft_free()))

    certificate = certify(options.method, own.rows, base.rows, trace_of)
    return f"{certificate.kind} {certificate.equal}/{len(rows)}"


def table_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The ``auto`` rows, as a terminal has room for them; steps are a drafted round's."""
    return [
        {name: row[name] for name in ("task", "batch", "T", "cap", "setting")}
        | {"speed": f"{row['speed']:.2f} [{row['low']:.2f} {row['high']:.2f}]"}
        | {"oracle": f"{row['oracle_allows']:.2f}", "best fixed": row["best_fixed"]}
        | {"to it": f"{row['to_best_fixed']:.2f}", "expected": _told(row["expected_steps"])}
        | {"steps": _told(row["measured_steps"]), "certificate": row["certificate"]}
        for row in rows
        if row["setting"].endswith(AUTO)
    ]


def _told(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def main(
    target: Annotated[str, typer.Option(help="Checkpoint folder or bundled name.")] = "sdar-tiny",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float64.")] = "float32",
    device: Annotated[str, typer.Option(help="cpu, cuda, or cuda:N.")] = "cpu",
    tasks: Annotated[str, typer.Option(help="Bundled tasks, comma-separated.")] = "words,code",
    count: Annotated[int, typer.Option("--problems", min=1, help="Problems a cell.")] = 16,
    batch_sizes: Annotated[str, typer.Option(help="Requests a forward.")] = "1,4",
    temperatures: Annotated[str, typer.Option(help="Temperatures.")] = "0,1",
    caps: Annotated[str, typer.Option(help="Caps of the commit order.")] = "1,0.9",
    methods: Annotated[str, typer.Option(help="Drafting methods.")] = "chain,order",
    budgets: Annotated[str, typer.Option(help="Fixed budgets to compare with.")] = "4,8,20",
    gamma: Annotated[float, typer.Option(help="Mass floor of the fixed order settings.")] = 0.03,
    repeats: Annotated[int, typer.Option(min=1, help="Passes over the prompts.")] = 2,
    out: Annotated[Path | None, typer.Option(help="JSON file for the rows.")] = None,
) -> None:
    """Tokens/s of `budget: auto` over draft-free decoding's, with intervals, cell by cell."""
    names = methods.split(",")
    config = TargetConfig.model_validate({"path": target, "dtype": dtype, "device": device})
    engine = open_engine(config, DrafterConfig(), [*names, ORACLE])
    runner = engine_runner(engine, device)
    settings = settings_of(names, map(int, numbers(budgets)), gamma)
    cells = list(
        product(
            tasks.split(","), map(int, numbers(batch_sizes)), numbers(temperatures), numbers(caps)
        )
    )
    rows: list[dict[str, Any]] = []
    with progress("auto") as show:
        for index, (task, batch_size, temperature, cap) in enumerate(cells):
            asked = problems(task, "heldout", count, PROBLEM_SEED)
            prompts = [PromptRow(id=p.id, prompt=p.prompt) for p in asked]
            rule = DecodeOptions(temperature=temperature, cap=cap, batch_size=batch_size)
            found = measure_cell(
                engine,
                runner,
                prompts,
                rule,
                settings,
                repeats,
                lambda n, of, i=index: show(i * of + n, len(cells) * of),
            )
            cell = {"task": task, "batch": batch_size, "T": temperature, "cap": cap}
            rows += [cell | row for row in found]
            if out is not None:
                facts = {"commit": git_commit(), "machine": machine(), "versions": versions()}
                facts |= {"target": config.model_dump(), "repeats": repeats, "rows": rows}
                write_whole(out, json.dumps(facts, indent=2) + "\n")
    show_table("budget auto against draft-free decoding", table_rows(rows))


if __name__ == "__main__":
    typer.run(main)
