"""The promise of ``budget: auto``: never slower than draft-free, and near the best fixed setting.

Every batch is decoded draft-free, with ``auto`` and with fixed settings, in turn; a ratio compares
two runs of one batch that follow each other closely, so that the machine's moods fall out. Cells
are tasks x batch sizes x temperatures x rules: caps of standard decoding, and for ``sets`` tau of
threshold decoding. ``oracle allows`` is what a drafter that knew the order could make of a cap: the
position oracle replayed at its best budget, priced by the same measured cost of a forward, for
batches of one.

    python -m benchmarks.auto_promise --problems 32 --batch-sizes 1,4 --caps 1,0.9 --out a.json
    python -m benchmarks.auto_promise --methods sets --taus 0.9,0.999 --out a.json
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from actors.loading import open_engine
from actors.runner import Runner, engine_runner
from benchmarks.auto_cells import AUTO, DRAFTING, Cell, Setting, cells_of, rules_of
from benchmarks.comma_lists import numbers
from benchmarks.machine import git_commit, machine, versions
from benchmarks.paired import BASELINE, measure
from benchmarks.spot.cells import Drafting
from benchmarks.spot.live import certify_rows
from benchmarks.spot.replaying import draft_free_tally, replay_tally
from cluster.console import progress, show_table
from decoders.cost_curve import CostCurve
from decoders.engine import Engine
from decoders.options import DecodeOptions
from decoders.prompts import PromptRow
from decoders.proposers.base import Proposer
from decoders.trace import Trace
from drafters.config import DrafterConfig
from models.config import TargetConfig
from tasks.bundled import problems
from tasks.whole import write_whole

PROBLEM_SEED = 7
ORACLE = "oracle-position"
ORACLE_BUDGETS = (1, 2, 4, 8, 16, 32)
RESAMPLES = 4000
FEWEST_BATCHES = 8
"""Of fewer, a bootstrap interval would be too narrow to be believed."""

Row = dict[str, Any]
Seconds = Sequence[Sequence[float]] | np.ndarray
"""``[repeat][batch]``."""


def intervals(base: Seconds, own: Seconds, seed: int = 0) -> dict[str, float | None]:
    """The median of the paired ratios, and the ratio of all seconds together, in which one slow
    batch shows; each with its 95 % bootstrap interval (``None`` of few batches), batches resampled
    whole. Both are ``[repeats, batches]``."""
    base, own = np.array(base), np.array(own)
    batches = base.shape[1]
    picks = np.random.default_rng(seed).integers(0, batches, (RESAMPLES, batches))
    medians = np.median((base / own)[:, picks], axis=(0, 2))
    totals = base[:, picks].sum(axis=(0, 2)) / own[:, picks].sum(axis=(0, 2))
    found: dict[str, float | None] = {
        "speed": float(np.median(base / own)),
        "total": float(base.sum() / own.sum()),
    }
    for name, drawn in (("speed", medians), ("total", totals)):
        ends = np.percentile(drawn, (2.5, 97.5)).tolist()
        few = batches < FEWEST_BATCHES
        found |= {f"{name}_low": None if few else ends[0], f"{name}_high": None if few else ends[1]}
    return found


def oracle_allows(traces: Sequence[Trace], proposer: Proposer, curve: CostCurve) -> float:
    """The best ratio, over budgets, of draft-free cost to that of the position oracle."""
    tried = [
        replay_tally(traces, Drafting(ORACLE, budget), proposer).cost(curve.at)
        for budget in ORACLE_BUDGETS
    ]
    return draft_free_tally(traces).cost(curve.at) / min(tried)


def measure_cell(
    engine: Engine,
    runner: Runner,
    rows: Sequence[PromptRow],
    rule: DecodeOptions,
    settings: Sequence[Setting],
    repeats: int,
    report: Callable[[int, int], None],
) -> list[Row]:
    """One row a setting: its ratios to draft-free decoding, and what else the promise names.

    ``auto`` starts as if the target had just been loaded, whatever was decoded before.
    """
    engine.forget()
    options = {BASELINE: rule} | {s.label: s.over(rule) for s in settings}
    measured = measure(runner, rows, options, repeats, report)
    base = measured[BASELINE]
    allowed = None
    if rule.method == "standard":
        alone = rule.model_copy(update={"batch_size": 1})
        oracle = engine.proposer(ORACLE)
        assert oracle is not None, "opened with the engine"
        allowed = oracle_allows(list(runner.record(rows, alone)), oracle, engine.auto.curve)
    found = []
    for setting in settings:
        own = measured[setting.label]
        certificate = certify_rows(runner, rows, options[setting.label], own, base)
        found.append(
            {"setting": setting.label}
            | intervals(base.seconds, own.seconds)
            | {"n": len(rows), "batches": len(own.seconds[0]), "nfe_factor": base.nfe / own.nfe}
            | {"oracle_allows": allowed}
            | steps_of(engine, setting, options[setting.label])
            | {"certificate": f"{certificate.kind} {certificate.equal}/{len(rows)}"}
            | {"divergence_margin": certificate.margin}
        )
    seconds = {label: each.seconds for label, each in measured.items()}
    for method in dict.fromkeys(s.method for s in settings):
        compare_with_best_fixed(found, seconds, method)
    return found


def measure_cells(
    engine: Engine,
    device: str,
    cells: Sequence[Cell],
    count: int,
    repeats: int,
    report: Callable[[int, int], None],
) -> Iterator[list[Row]]:
    """The rows of one cell after the other, of ``count`` held-out problems each."""
    runner = engine_runner(engine, device)
    for index, cell in enumerate(cells):
        asked = problems(cell.task, "heldout", count, PROBLEM_SEED)
        prompts = [PromptRow(id=p.id, prompt=p.prompt) for p in asked]

        def report_all(done: int, of: int, before: int = index) -> None:
            report(before * of + done, len(cells) * of)

        own = (cell.rule, cell.settings, repeats, report_all)
        yield [cell.names | row for row in measure_cell(engine, runner, prompts, *own)]


def steps_of(engine: Engine, setting: Setting, options: DecodeOptions) -> Row:
    """Of ``auto``: steps of a drafted round, as it expected them and as they came."""
    balance = engine.auto.balance(options)
    if setting.budget != AUTO or not balance.verified:
        return {"expected_steps": None, "measured_steps": None}
    return {
        "expected_steps": 1 + balance.expected / balance.verified,
        "measured_steps": 1 + balance.accepted / balance.verified,
    }


def compare_with_best_fixed(
    rows: Sequence[Row], seconds: Mapping[str, Seconds], method: str
) -> None:
    """Add to the method's ``auto`` row its paired ratio to the fastest of the method's fixed
    settings and draft-free decoding."""
    auto = f"{method} {AUTO}"
    fixed = [r["setting"] for r in rows if r["setting"].startswith(f"{method} ")]
    fixed = [BASELINE, *(label for label in fixed if label != auto)]
    best = min(fixed, key=lambda label: float(np.sum(seconds[label])))
    for row in rows:
        if row["setting"] == auto:
            row["best_fixed"] = "draft-free" if best == BASELINE else best
            row["to_best_fixed"] = float(np.median(np.array(seconds[best]) / seconds[auto]))


def table_rows(rows: Sequence[Row]) -> list[Row]:
    """The ``auto`` rows, as a terminal has room for them; steps are a drafted round's."""
    return [
        {name: row[name] for name in ("task", "batch", "T", "rule", "setting")}
        | {"median": _spread(row, "speed"), "total": _spread(row, "total")}
        | {"oracle": _told(row["oracle_allows"], 2), "best fixed": row["best_fixed"]}
        | {"to it": f"{row['to_best_fixed']:.2f}", "expected": _told(row["expected_steps"])}
        | {"steps": _told(row["measured_steps"]), "certificate": row["certificate"]}
        for row in rows
        if row["setting"].endswith(AUTO)
    ]


def _spread(row: Row, name: str) -> str:
    return f"{row[name]:.2f} [{_told(row[f'{name}_low'], 2)} {_told(row[f'{name}_high'], 2)}]"


def _told(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def main(
    target: Annotated[str, typer.Option(help="Checkpoint folder or bundled name.")] = "sdar-tiny",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float64.")] = "float32",
    device: Annotated[str, typer.Option(help="cpu, cuda, or cuda:N.")] = "cpu",
    tasks: Annotated[str, typer.Option(help="Bundled tasks, comma-separated.")] = "words,code",
    count: Annotated[int, typer.Option("--problems", min=1, help="Problems a cell.")] = 32,
    batch_sizes: Annotated[str, typer.Option(help="Requests a forward.")] = "1,4",
    temperatures: Annotated[str, typer.Option(help="Temperatures.")] = "0,1",
    caps: Annotated[str, typer.Option(help="Caps of the commit order.")] = "1,0.9",
    taus: Annotated[str, typer.Option(help="Threshold decoding's, for sets.")] = "0.9",
    methods: Annotated[
        str, typer.Option(help=f"Drafting methods: {', '.join(DRAFTING)}.")
    ] = "chain,order",
    budgets: Annotated[str, typer.Option(help="Fixed budgets to compare with.")] = "4,8,20",
    gamma: Annotated[float, typer.Option(help="Mass floor of order and sets, fixed.")] = 0.03,
    repeats: Annotated[int, typer.Option(min=1, help="Passes over the prompts.")] = 2,
    out: Annotated[Path | None, typer.Option(help="JSON file for the rows.")] = None,
) -> None:
    """Tokens/s of `budget: auto` over draft-free decoding's, with intervals, cell by cell."""
    cells = cells_of(
        tasks=tasks.split(","),
        batch_sizes=numbers(batch_sizes, int),
        temperatures=numbers(temperatures),
        rules=rules_of(methods.split(","), numbers(caps), numbers(taus)),
        budgets=numbers(budgets, int),
        gamma=gamma,
    )
    config = TargetConfig.model_validate({"path": target, "dtype": dtype, "device": device})
    engine = open_engine(config, DrafterConfig(), [*methods.split(","), ORACLE])
    rows: list[Row] = []
    with progress("auto") as show:
        for found in measure_cells(engine, device, cells, count, repeats, show):
            rows += found
            if out is not None:
                facts = {"commit": git_commit(), "machine": machine(), "versions": versions()}
                facts |= {"target": config.model_dump(), "repeats": repeats, "rows": rows}
                write_whole(out, json.dumps(facts, indent=2) + "\n")
    show_table("budget auto against draft-free decoding", table_rows(rows))


if __name__ == "__main__":
    typer.run(main)
