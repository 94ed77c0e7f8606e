"""What one running batch makes of a target: many requests at once against one at a time, and
drafting with ``budget: auto`` against draft-free batching, on the engine that an endpoint decodes
with.

The two sides of every ratio decode the same prompts one after the other, in turn first and second,
so that the machine's moods fall out; intervals are bootstraps over batches of prompts. ``allowed``
is what a forward of so many requests, priced between these runs, leaves possible: n x c(1) / c(n).

    python -m benchmarks.serving_batch --target sdar-tiny --out runs/serving-batch.json
"""

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import torch
import typer

from actors.loading import open_engine
from benchmarks.auto_promise import FEWEST_BATCHES, intervals
from benchmarks.comma_lists import numbers
from benchmarks.machine import git_commit, machine, versions
from benchmarks.serving_runs import (
    Run,
    answer,
    batches_of,
    equal,
    in_step,
    opened,
    price,
    speed,
)
from cluster.console import progress, show_table
from decoders.engine import Engine
from decoders.options import PROPOSERS, DecodeOptions
from decoders.request import Request
from drafters.config import DrafterConfig
from models.config import TargetConfig
from tasks.bundled import find_task
from tasks.whole import write_whole

FEWEST_PROMPTS = 4
"""Of a batch: one answer alone is a coin toss."""

Row = dict[str, Any]
Report = Callable[[int], None]
"""So many batches are done."""


def measure_batching(engine: Engine, batches: Sequence[Sequence[Request]], report: Report) -> Row:
    """Draft-free answers, all of a batch at once against one at a time."""
    many, slots = len(batches[0]), count(-1, -1)
    alone: list[Run] = []
    together: list[Run] = []
    prices: list[list[float]] = []
    with opened(engine, many) as batching:
        answer(batching, batches[0], many)
        for index, batch in enumerate(batches):
            sides = [(1, alone), (many, together)]
            for clients, runs in sides if index % 2 else sides[::-1]:
                runs.append(answer(batching, batch, clients))
            with batching.exclusive():
                prices.append(price(engine, [request.prompt_ids for request in batch], slots))
            report(index + 1)
    ratio = intervals([[run.seconds for run in alone]], [[run.seconds for run in together]])
    one, all_ = (median(times) for times in zip(*prices, strict=True))
    allowed = median(many * first / whole for first, whole in prices)
    return {
        "requests": many,
        "batches": len(batches),
        "alone_tokens_per_second": speed(alone),
        "together_tokens_per_second": speed(together),
        "ratio": ratio["total"],
        "ratio_low": ratio["total_low"],
        "ratio_high": ratio["total_high"],
        "forward_seconds": [one, all_],
        "cost_ratio": median(whole / first for first, whole in prices),
        "allowed": allowed,
        "reached": (ratio["total"] or 0.0) / allowed,
        "equal": equal(alone, together),
        "answers": many * len(batches),
    }


def measure_drafting(
    engine: Engine,
    batches: Sequence[Sequence[Request]],
    clients: int,
    drafting: DecodeOptions,
    report: Report,
) -> Row:
    """``clients`` at a time: answers with ``drafting`` against the same ones draft-free.

    It starts as if the target had just been loaded; the first batch, which is not counted, teaches.
    """
    engine.forget()
    base: list[Run] = []
    own: list[Run] = []
    with opened(engine, clients) as batching:
        drafted = [[replace(each, options=drafting) for each in batch] for batch in batches]
        answer(batching, drafted[0], clients)
        for index, (plain, other) in enumerate(zip(batches, drafted, strict=True)):
            sides = [(plain, base), (other, own)]
            for batch, runs in sides if index % 2 else sides[::-1]:
                runs.append(answer(batching, batch, clients))
            report(index + 1)
    ratio = intervals([[run.seconds for run in base]], [[run.seconds for run in own]])
    rounds = [round for run in own for result in run.results for round in result.rounds]
    nfe = [sum(result.nfe for run in runs for result in run.results) for runs in (base, own)]
    return {
        "requests": clients,
        "batches": len(batches),
        "draft_free_tokens_per_second": speed(base),
        "auto_tokens_per_second": speed(own),
        "ratio": ratio["total"],
        "ratio_low": ratio["total_low"],
        "ratio_high": ratio["total_high"],
        "nfe_factor": nfe[0] / nfe[1],
        "drafted_rounds": sum(r.drafts > 0 for r in rounds) / nfe[1],
        "equal": equal(base, own),
        "answers": sum(map(len, batches)),
    }


def batching_table(row: Row) -> list[Row]:
    """One side a row."""
    one, all_ = row["forward_seconds"]
    told = f"{row['ratio']:.2f} {interval(row)}"
    return [
        {"requests": 1, "tok/s": row["alone_tokens_per_second"], "forward ms": 1e3 * one}
        | {"ratio": "1.00", "allowed": "", "reached": "", "equal": ""},
        {
            "requests": row["requests"],
            "tok/s": row["together_tokens_per_second"],
            "forward ms": 1e3 * all_,
            "ratio": told,
            "allowed": f"{row['allowed']:.2f}",
            "reached": f"{row['reached']:.0%}",
            "equal": f"{row['equal']}/{row['answers']}",
        },
    ]


def drafting_table(rows: Sequence[Row]) -> list[Row]:
    return [
        {
            "requests": row["requests"],
            "draft-free tok/s": row["draft_free_tokens_per_second"],
            "auto tok/s": row["auto_tokens_per_second"],
            "ratio": f"{row['ratio']:.3f} {interval(row)}",
            "NFE factor": row["nfe_factor"],
            "drafted": f"{row['drafted_rounds']:.0%}",
            "equal": f"{row['equal']}/{row['answers']}",
        }
        for row in rows
    ]


def interval(row: Row) -> str:
    """The 95 % interval, if there are batches enough to believe one."""
    ends = (row["ratio_low"], row["ratio_high"])
    return f"[{' '.join('-' if end is None else f'{end:.3f}' for end in ends)}]"


def main(
    target: Annotated[str, typer.Option(help="Checkpoint folder or bundled name.")] = "sdar-tiny",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float64.")] = "float32",
    device: Annotated[str, typer.Option(help="cpu, cuda, or cuda:N.")] = "cpu",
    task: Annotated[str, typer.Option(help="A bundled task.")] = "words",
    method: Annotated[str, typer.Option(help="What drafts with budget auto.")] = "order",
    requests: Annotated[str, typer.Option(help="Requests at a time.")] = "1,2,4,8,16",
    num_batches: Annotated[int, typer.Option("--batches", min=1, help="Of every cell.")] = 8,
    blocks: Annotated[int, typer.Option(min=1, help="Of an answer, many against one.")] = 2,
    cap: Annotated[float, typer.Option(help="Cap of the commit order.")] = 1.0,
    temperature: Annotated[float, typer.Option(help="Sampling temperature.")] = 0.0,
    threads: Annotated[int, typer.Option(min=1, help="Of torch; a rank on a CPU has one.")] = 1,
    out: Annotated[Path | None, typer.Option(help="JSON file.")] = None,
) -> None:
    """Throughput of one running batch: many at once, and drafting with `budget: auto`."""
    if method not in PROPOSERS:
        raise typer.BadParameter(f"{method!r}: choose from {', '.join(PROPOSERS)}")
    find_task(task)
    torch.set_num_threads(threads)
    sizes: list[int] = numbers(requests, int)
    shared = {"cap": cap, "temperature": temperature}
    free = DecodeOptions.model_validate(shared)
    drafting = DecodeOptions.lenient(**shared, method=method, budget="auto")
    config = TargetConfig.model_validate({"path": target, "dtype": dtype, "device": device})
    engine = open_engine(config, DrafterConfig(), [method])
    block = engine.target.spec.block_size
    fixed = free.model_copy(update={"max_new_tokens": blocks * block, "ignore_stop": True})
    facts: Row = {"command": shlex.join(sys.argv), "commit": git_commit(), "machine": machine()}
    facts |= {"versions": versions(), "target": config.model_dump(), "task": task}
    facts |= {"drafting": drafting.model_dump(), "intervals_from": FEWEST_BATCHES}
    with progress("serving batch") as show:
        cells = (1 + len(sizes)) * num_batches
        found = batches_of(engine, task, max(sizes), num_batches, fixed)
        many = [in_step(batch, block) for batch in found]
        facts["batching"] = measure_batching(engine, many, lambda n: show(n, cells))
        facts["drafting_rows"] = []
        for index, size in enumerate(sizes, start=1):
            batches = batches_of(engine, task, max(size, FEWEST_PROMPTS), num_batches, free)
            done = index * num_batches
            row = measure_drafting(
                engine, batches, size, drafting, lambda n, done=done: show(done + n, cells)
            )
            facts["drafting_rows"].append(row)
            if out is not None:
                write_whole(out, json.dumps(facts, indent=2) + "\n")
    show_table("requests at once against one at a time", batching_table(facts["batching"]))
    title = f"{method} with budget auto against draft-free batching"
    show_table(title, drafting_table(facts["drafting_rows"]))


if __name__ == "__main__":
    typer.run(main)
