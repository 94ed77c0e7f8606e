"""Whole steps or a capped order: which serves better at equal accuracy?

Threshold decoding (and SPOT-Sets over it) at several tau, and capped order with its drafts at
several caps, decode the same held-out problems in turn. Every setting stands beside standard
decoding: accuracy on the same problems, forwards, and seconds of the same batch. ``serves`` says
whether its accuracy is not shown to be below standard decoding's; the best of those that serve, by
forwards and by speed, are named for every task.

    python -m benchmarks.equal_accuracy --problems 100 --taus 0.9,0.99,0.999 --caps 0.9 --out a.json
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from actors.runner import Runner, open_runner
from benchmarks.certificate import certify
from benchmarks.comma_lists import numbers
from benchmarks.machine import git_commit, machine, versions
from benchmarks.paired import Measured, measure, summarize
from benchmarks.spot.scoring import Correct, accuracy
from cluster.console import progress, show_table
from decoders.options import DecodeOptions
from decoders.prompts import PromptRow
from decoders.trace import Trace
from drafters.config import DrafterConfig
from models.config import TargetConfig
from tasks.bundled import find_task, problems, score
from tasks.problem import Problem
from tasks.whole import write_whole

STANDARD = "standard"
PROBLEM_SEED = 7

Row = dict[str, Any]
Settings = dict[str, DecodeOptions]


def settings_of(
    caps: Sequence[float], taus: Sequence[float], budget: int, cross_block: bool, size: int
) -> Settings:
    """Standard decoding, then for every cap its draft-free run and two drafters', and for every tau
    threshold decoding and sets."""
    drafts = {"budget": budget, "cross_block": cross_block}
    asked: dict[str, Row] = {STANDARD: {"method": STANDARD}}
    for cap in caps:
        asked |= {f"standard cap {cap:g}": {"method": STANDARD, "cap": cap}} if cap < 1 else {}
        for method in ("chain", "order"):
            asked[f"{method} cap {cap:g}"] = {"method": method, "cap": cap} | drafts
    for tau in taus:
        asked[f"threshold {tau:g}"] = {"method": "threshold", "tau": tau}
        asked[f"sets {tau:g}"] = {"method": "sets", "tau": tau} | drafts
    return {
        name: DecodeOptions.model_validate(values | {"batch_size": size})
        for name, values in asked.items()
    }


def measure_task(
    runner: Runner, asked: Sequence[Problem], settings: Settings, repeats: int, report: Any
) -> list[Row]:
    """One row a setting."""
    prompts = [PromptRow(id=problem.id, prompt=problem.prompt) for problem in asked]
    measured = measure(runner, prompts, settings, repeats, report)
    right = {name: correct_of(asked, own) for name, own in measured.items()}
    return [
        row_of(runner, prompts, name, settings, measured)
        | judged(right[name], right[STANDARD])
        | {"serves": serves(right[name], right[STANDARD])}
        for name in settings
    ]


def correct_of(asked: Sequence[Problem], own: Measured) -> Correct:
    """Which problems the outputs solve."""
    found = score(asked, [row["text"] for row in own.rows])
    return {problem.id: ok for problem, ok in zip(asked, found, strict=True)}


def judged(own: Correct, standard: Correct) -> Row:
    """Accuracy, and its difference to standard decoding's."""
    return accuracy(own, standard)._asdict()


def serves(own: Correct, standard: Correct) -> bool:
    """Whether the paired interval of the difference in accuracy reaches up to none."""
    return accuracy(own, standard).difference_high >= 0


def row_of(
    runner: Runner,
    prompts: Sequence[PromptRow],
    name: str,
    settings: Settings,
    measured: Mapping[str, Measured],
) -> Row:
    """Counts, speed over standard decoding, and the certificate over the setting's own rule."""
    options, own = settings[name], measured[name]
    draft_free = options.draft_free()
    base = next(label for label, each in settings.items() if each == draft_free)

    def trace_of(index: int) -> Trace:
        return next(runner.record([prompts[index]], draft_free))

    certificate = certify(options, own.rows, measured[base].rows, trace_of)
    found = summarize(own, measured[STANDARD], certificate)
    return (
        {"setting": name, "draft_free": base} | found | {"factor_own": measured[base].nfe / own.nfe}
    )


def best_of(rows: Sequence[Row]) -> Row:
    """Of the settings that serve, the one with the fewest forwards and the fastest."""
    able = [row for row in rows if row["serves"]]
    return {
        "fewest_forwards": min(able, key=lambda row: row["nfe"])["setting"],
        "fastest": max(able, key=lambda row: row["ratio"]["median"])["setting"],
    }


def table_rows(rows: Sequence[Row]) -> list[Row]:
    """What a terminal has room for."""
    return [
        {name: row[name] for name in ("task", "setting")}
        | {"right": f"{row['right']}/{row['n']}", "difference": spread(row, "difference", ".3f")}
        | {"serves": row["serves"], "NFE": row["nfe"], "factor": row["nfe_ratio"]}
        | {"own factor": row["factor_own"]}
        | {"speed": "{median:.2f} [{q25:.2f} {q75:.2f}]".format(**row["ratio"])}
        | {"certificate": f"{row['certificate']} {row['equal']}"}
        for row in rows
    ]


def spread(row: Row, name: str, form: str) -> str:
    """A value with its interval."""
    value, low, high = (format(row[f"{name}{end}"], form) for end in ("", "_low", "_high"))
    return f"{value} [{low} {high}]"


def main(
    target: Annotated[str, typer.Option(help="Checkpoint folder or bundled name.")] = "sdar-tiny",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float64.")] = "float32",
    device: Annotated[str, typer.Option(help="cpu, cuda, or cuda:N.")] = "cpu",
    drafter: Annotated[str | None, typer.Option(help="A sets model's folder.")] = None,
    tasks: Annotated[str, typer.Option(help="Bundled tasks, comma-separated.")] = "words,code",
    count: Annotated[int, typer.Option("--problems", min=1, help="Problems a task.")] = 100,
    taus: Annotated[str, typer.Option(help="Of threshold decoding and sets.")] = "0.9,0.99,0.999",
    caps: Annotated[str, typer.Option(help="Of chain and order.")] = "0.9",
    budget: Annotated[int, typer.Option(min=1, help="Drafts of a forward.")] = 8,
    cross_block: Annotated[bool, typer.Option(help="Drafts reach into the next block.")] = True,
    batch_size: Annotated[int, typer.Option(min=1, help="Requests a forward.")] = 1,
    repeats: Annotated[int, typer.Option(min=1, help="Passes over the prompts.")] = 1,
    out: Annotated[Path | None, typer.Option(help="JSON file for the rows.")] = None,
) -> None:
    """Sets over threshold decoding against capped order, at equal accuracy."""
    names = list(dict.fromkeys(tasks.split(",")))
    for task in names:
        find_task(task)
    settings = settings_of(numbers(caps), numbers(taus), budget, cross_block, batch_size)
    config = TargetConfig.model_validate({"path": target, "dtype": dtype, "device": device})
    methods = {each.method for each in settings.values()}
    rows: list[Row] = []
    best: dict[str, Row] = {}
    with open_runner(config, DrafterConfig(sets=drafter), methods) as runner:
        for task in names:
            asked = problems(task, "heldout", count, PROBLEM_SEED)
            with progress(task) as report:
                own = measure_task(runner, asked, settings, repeats, report)
            rows += [{"task": task} | row for row in own]
            best[task] = best_of(own)
    show_table("Accuracy, forwards and speed beside standard decoding", table_rows(rows))
    show_table("The best that serves", [{"task": task} | found for task, found in best.items()])
    if out is not None:
        facts = {"commit": git_commit(), "machine": machine(), "versions": versions()}
        facts |= {"target": config.model_dump(), "repeats": repeats, "best": best, "rows": rows}
        write_whole(out, json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    typer.run(main)
