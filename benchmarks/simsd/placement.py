"""Where drafter and target run: tokens a second of every placement beside every baseline.

All of them decode every batch of prompts in turn, so that drift of the machine falls out of their
ratios (unless they cannot be open at once); a speed-up is told over each baseline, the fastest one
included.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from time import perf_counter
from typing import Any

import numpy as np

from actors.runner import Runner, open_runner
from benchmarks.paired import quartiles
from benchmarks.simsd.config import SimsdConfig
from benchmarks.simsd.decoding import Row
from benchmarks.simsd.stages import Report
from benchmarks.spot.found import Table
from benchmarks.spot.jobs import keep, kept
from benchmarks.spot.stages import stage
from decoders.options import DecodeOptions
from decoders.prompts import PromptRow
from drafters.config import DrafterConfig
from models.config import TargetConfig

Place = tuple[TargetConfig, DrafterConfig, str]
"""Target, drafter and method."""

NOTE = (
    "T=0, one batch of prompts after the other, every row in turn. tokens_per_second: median over "
    "batches and repeats, drafting included; over NAME: median ratio to that baseline. equal: "
    "outputs equal to the same method's in one process with one rank. ahead: the small model, in "
    "an actor of its own, drafts the next block while the target verifies. The mask is "
    "approximate wherever it stands."
)


def places(config: SimsdConfig) -> dict[str, Place]:
    """Every baseline, and SimSD in one process, beside an actor, and on several ranks."""
    asked, drafter = config.placement, config.drafter
    found: dict[str, Place] = {}
    for size in asked.tensor_parallel:
        for kind in asked.forwards:
            target = config.target.model_copy(update={"tp": size, "forwards": kind})
            found[f"standard tp={size} {kind}"] = target, drafter, "standard"
    kind = asked.forwards[-1]
    for size in asked.tensor_parallel:
        target = config.target.model_copy(update={"tp": size, "forwards": kind})
        here = drafter.model_copy(update={"placement": "target"})
        found[f"simsd tp={size} {kind}"] = target, here, "simsd"
    single = config.target.model_copy(update={"tp": 1, "forwards": kind})
    for ahead in (False, True):
        apart = drafter.model_copy(update={"placement": "actor", "ahead": ahead})
        name = "simsd tp=1, drafter actor" + (", ahead" if ahead else "")
        found[name] = single, apart, "simsd"
    return found


def measure_places(report: Report) -> list[Row]:
    """Seconds ``[repeat][batch]``, tokens ``[batch]`` and texts of every place; nothing without
    problems for it."""
    config, asked = report.config, report.config.placement
    if not asked.problems:
        return []
    path = report.out / "placement" / "turns.json"
    facts = {"digests": report.digests("main"), "placement": asked.model_dump()}
    facts |= {"target": config.target.model_dump(), "drafter": config.drafter.model_dump()}
    facts |= {"batch": config.batch_size, "limit": config.max_new_tokens, "tasks": config.tasks}
    found = kept(path, facts)
    if found is None:
        everything = places(config)
        groups = [list(everything)] if asked.together else [[name] for name in everything]
        rows: list[Row] = []
        with stage("placement"):
            for names in groups:
                rows += _measure(report, {name: everything[name] for name in names})
        found = keep(path, facts, {"rows": rows})
    return found["rows"]


def _measure(report: Report, group: Mapping[str, Place]) -> list[Row]:
    """Rows of places that are open at the same time and take turns."""
    with ExitStack() as resources:
        runners = {
            name: (resources.enter_context(open_runner(target, drafter, {method})), method)
            for name, (target, drafter, method) in group.items()
        }
        return _take_turns(report, runners)


def _take_turns(report: Report, runners: Mapping[str, tuple[Runner, str]]) -> list[Row]:
    config = report.config
    prompts = [
        PromptRow(id=p.id, prompt=p.prompt)
        for task in config.tasks
        for p in report.asked(task, config.placement.problems)
    ]
    size = config.batch_size
    batches = [prompts[start : start + size] for start in range(0, len(prompts), size)]
    texts: dict[str, dict[str, list[int]]] = {name: {} for name in runners}
    seconds: dict[str, list[list[float]]] = {name: [] for name in runners}
    tokens: dict[str, list[int]] = {name: [] for name in runners}
    for repeat in range(-1, config.placement.repeats):
        for name in runners if repeat >= 0 else ():  # the first pass warms up
            seconds[name].append([])
        for batch in batches:
            for name, (runner, method) in runners.items():
                taken, rows = _decode(runner, batch, _options(config, method))
                texts[name] |= {row["id"]: row["token_ids"] for row in rows}
                if repeat >= 0:
                    seconds[name][repeat].append(taken)
                else:
                    tokens[name].append(sum(len(row["token_ids"]) for row in rows))
    return [
        {"place": name, "method": method, "texts": texts[name]}
        | {"seconds": seconds[name], "tokens": tokens[name]}
        for name, (_, method) in runners.items()
    ]


def _options(config: SimsdConfig, method: str) -> DecodeOptions:
    limits = {"max_new_tokens": config.max_new_tokens, "batch_size": config.batch_size}
    return DecodeOptions.model_validate({"method": method} | limits)


def _decode(
    runner: Runner, batch: Sequence[PromptRow], options: DecodeOptions
) -> tuple[float, list[dict[str, Any]]]:
    started = perf_counter()
    rows = list(runner.decode(batch, options, False))
    return perf_counter() - started, rows


def placement_table(rows: Sequence[Row]) -> Table:
    """Every place beside every baseline."""
    baselines = [row for row in rows if row["method"] == "standard"]
    shown = [
        {"place": row["place"]}
        | {"tokens_per_second": _rate(row)}
        | {f"over {base['place']}": _ratio(base, row) for base in baselines}
        | {"equal": _equal(row, rows)}
        for row in rows
    ]
    return Table("placement", "Placement, beside every baseline", ("place",), shown, NOTE)


def _rate(row: Row) -> float:
    """Tokens of all batches over the sum of the batches' medians."""
    return float(sum(row["tokens"]) / np.median(np.array(row["seconds"]), axis=0).sum())


def _ratio(base: Row, row: Row) -> float:
    """Median of the paired ratios of tokens/s; both sides' tokens are those of the pair, as the
    mask's texts are others."""
    own, theirs = (np.array(r["tokens"]) / np.array(r["seconds"]) for r in (row, base))
    return quartiles(own / theirs)["median"]


def _equal(row: Row, rows: Sequence[Row]) -> str:
    first = next(other for other in rows if other["method"] == row["method"])
    same = sum(row["texts"][id_] == ids for id_, ids in first["texts"].items())
    return f"{same}/{len(first['texts'])}"
