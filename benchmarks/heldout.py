"""Methods side by side on held-out problems: accuracy, NFE, tokens per forward, acceptance.

    python -m benchmarks.heldout --target sdar-tiny --problems 100 --out runs/heldout.json

Every row is decoded live, compared output by output with draft-free decoding of the same cap, and
replayed from the draft-free traces, whose rounds must come out the same.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from actors.loading import open_engine
from decoders.engine import Engine
from decoders.loop import decode
from decoders.options import DecodeOptions
from decoders.prompts import PromptRow
from decoders.replay import replay
from decoders.request import Request, Result
from decoders.trace import Trace, TraceRecorder
from drafters.config import DrafterConfig
from models.config import TargetConfig
from tasks.bundled import TASKS, problems, score
from tasks.intervals import wilson_interval
from tasks.problem import Problem

PROBLEM_SEED = 7
COLUMNS = {
    "task": "task",
    "method": "method",
    "cap": "cap",
    "budget": "budget",
    "accuracy": "accuracy",
    "nfe": "NFE",
    "nfe_factor": "NFE factor",
    "tokens_per_forward": "tokens/forward",
    "accepted_per_round": "accepted/round",
    "certificate": "certificate",
    "replay": "replay",
}


@dataclass(frozen=True)
class Draftless:
    """Draft-free results and traces of one task at one cap."""

    results: list[Result]
    traces: list[Trace]


def requests_of(engine: Engine, asked: list[Problem], options: DecodeOptions) -> list[Request]:
    return engine.requests([PromptRow(id=p.id, prompt=p.prompt) for p in asked], options)


def draft_free(engine: Engine, asked: list[Problem], options: DecodeOptions) -> Draftless:
    """Decode without drafts and keep the traces."""
    recorder = TraceRecorder()
    requests = requests_of(engine, asked, options.draft_free())
    decoder = engine.decoder(recorder)
    found = {r.request.id: r for r in decode(decoder, requests, options.batch_size)}
    results = [found[request.id] for request in requests]
    return Draftless(results, [recorder.finish(result) for result in results])


def measure(
    engine: Engine, asked: list[Problem], options: DecodeOptions, base: Draftless
) -> dict[str, Any]:
    """One row of the table: live results, certified and replayed against ``base``."""
    requests = requests_of(engine, asked, options)
    found = {r.request.id: r for r in engine.decode(requests, options.batch_size)}
    results = [found[request.id] for request in requests]
    pairs = list(zip(results, base.results, strict=True))
    equal = sum(a.token_ids == b.token_ids for a, b in pairs)
    replayed = replay(base.traces, options, engine.proposer(options.method))
    same = sum(a.rounds == b.rounds for a, b in zip(replayed, results, strict=True))
    correct = sum(score(asked, [engine.spell(result)["text"] for result in results]))
    nfe, n = sum(r.nfe for r in results), len(results)
    verified = [d for r in results for d in r.rounds if d.kind == "verify"]
    return {
        "method": options.method,
        "cap": options.cap,
        "budget": options.budget if options.drafts else 0,
        "n": n,
        "accuracy": correct / n,
        "accuracy_interval": wilson_interval(correct, n),
        "nfe": nfe,
        "nfe_replayed": sum(r.nfe for r in replayed),
        "nfe_factor": sum(r.nfe for r in base.results) / nfe,
        "tokens_per_forward": sum(r.commits for r in results) / nfe,
        "accepted_per_round": sum(d.accepted for d in verified) / max(1, len(verified)),
        "equal": equal,
        "certificate": "exact" if equal == n else f"differs ({n - equal} of {n})",
        "replay": "equal" if same == n else f"differs ({n - same} of {n})",
    }


def settings(
    methods: list[str], budgets: list[int], caps: list[float], batch_size: int
) -> list[DecodeOptions]:
    """``standard`` at every cap, and the drafting ``methods`` at every cap and budget."""
    found = []
    for cap in caps:
        found.append(DecodeOptions(method="standard", cap=cap, batch_size=batch_size))
        found += [
            DecodeOptions.lenient(method=method, cap=cap, budget=budget, batch_size=batch_size)
            for budget in budgets
            for method in methods
        ]
    return found


def table_of(rows: list[dict[str, Any]]) -> Table:
    table = Table(*COLUMNS.values(), title="held-out problems, live; NFE without prefill")
    for row in rows:
        cells = [row[key] for key in COLUMNS]
        table.add_row(*(f"{c:.3f}" if isinstance(c, float) else str(c) for c in cells))
    return table


def main(
    target: Annotated[str, typer.Option(help="Checkpoint folder or bundled name.")] = "sdar-tiny",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float64.")] = "float32",
    problems_each: Annotated[int, typer.Option("--problems", help="Problems a task.")] = 100,
    methods: Annotated[
        str, typer.Option(help="Drafting methods, comma-separated.")
    ] = "chain,order",
    budgets: Annotated[str, typer.Option(help="Draft budgets D, comma-separated.")] = "8,20",
    caps: Annotated[str, typer.Option(help="Caps of the commit order.")] = "1,0.9",
    batch_size: Annotated[int, typer.Option(help="Requests a forward.")] = 8,
    drafter: Annotated[str | None, typer.Option(help="Order model folder.")] = None,
    out: Annotated[Path | None, typer.Option(help="JSON file for the rows.")] = None,
) -> None:
    """Accuracy, NFE and acceptance of each method on held-out bundled problems."""
    config = TargetConfig.model_validate({"path": target, "dtype": dtype})
    asked_for = methods.split(",")
    engine = open_engine(config, DrafterConfig(path=drafter), asked_for)
    rows: list[dict[str, Any]] = []
    console = Console()
    tries = settings(
        asked_for,
        [int(b) for b in budgets.split(",")],
        [float(c) for c in caps.split(",")],
        batch_size,
    )
    for task in TASKS:
        asked = problems(task, "heldout", problems_each, PROBLEM_SEED)
        base: dict[float, Draftless] = {}
        for options in tries:
            if options.cap not in base:
                base[options.cap] = draft_free(engine, asked, options)
            rows.append({"task": task} | measure(engine, asked, options, base[options.cap]))
            console.print(rows[-1] if not console.is_terminal else f"{task}: {options.method}")
            if out is not None:
                out.parent.mkdir(parents=True, exist_ok=True)
                out.write_text(json.dumps({"target": target, "dtype": dtype, "rows": rows}))
    console.print(table_of(rows))


if __name__ == "__main__":
    typer.run(main)
