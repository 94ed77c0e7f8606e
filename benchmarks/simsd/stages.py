"""The report's stages; each goes on behind what an earlier run left in the folder."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from actors.loading import open_engine
from benchmarks.simsd.config import SimsdConfig
from benchmarks.simsd.decoding import Row, decoded, with_small_model
from benchmarks.simsd.fidelity import ExactSlots, Slot, first_layers, measure_text
from benchmarks.simsd.settings import EXACT_SLOTS, MAIN, SELF, Setting, plan_settings
from benchmarks.spot.jobs import keep, kept, short_digest
from benchmarks.spot.stages import stage
from decoders.engine import Engine
from decoders.options import DecodeOptions
from decoders.prompts import PromptRow
from decoders.simsd.companion import SimSD
from decoders.simsd.opening import find_small_model
from decoders.simsd.small_model import SmallModel
from models.checkpoint import find_checkpoint
from models.digests import digest
from models.target import Target
from tasks.bundled import problems
from tasks.problem import Problem


@dataclass
class Report:
    """A report under way. Pairs are opened when the first stage asks for them."""

    config: SimsdConfig
    out: Path

    def __post_init__(self) -> None:
        self.engine = cache(self._engine)
        self.settings = plan_settings(self.config, self.engine(MAIN).target.spec.block_size)

    def asked(self, task: str, count: int) -> list[Problem]:
        return problems(task, "heldout", count, self.config.problem_seed)

    def _engine(self, pair: str, copied: bool = True) -> Engine:
        config = self.config
        if pair in (SELF, EXACT_SLOTS) or not copied:
            main = self.engine(MAIN)
            if pair == EXACT_SLOTS:
                companion = ExactSlots(SmallModel(small_of(main).target))
                return Engine(main.folder, main.target, {"simsd": companion})
            if pair == MAIN:
                return with_small_model(main, small_of(main).target, copied)
            assert isinstance(main.target, Target)
            # The same network, with prefixes of its own.
            return with_small_model(main, Target(main.target.model), copied)
        if pair == MAIN:
            return open_engine(config.target, config.drafter, {"simsd"})
        other = config.pairs[int(pair)]
        target = config.target.model_copy(update={"path": other.target, "block_size": None})
        path = other.drafter or other.target
        drafter = config.drafter.model_copy(update={"path": path, "small": None})
        return open_engine(target, drafter, {"simsd"})

    def digests(self, pair: str) -> dict[str, str]:
        """Of a pair's target and small model."""
        config = self.config
        if pair in (MAIN, SELF, EXACT_SLOTS):
            target = find_checkpoint(config.target.path)
            small = target if pair == SELF else find_small_model(config.drafter, target)
        else:
            other = config.pairs[int(pair)]
            target = find_checkpoint(other.target)
            small = find_checkpoint(other.drafter or other.target)
        return {"target": digest(target), "small": digest(small)}


def small_of(engine: Engine) -> SmallModel:
    """The small model of an engine of this process."""
    companion = engine.proposers["simsd"]
    assert isinstance(companion, SimSD)
    assert isinstance(companion.drafting, SmallModel)
    return companion.drafting


def runs_as(config: SimsdConfig) -> dict[str, Any]:
    """What decides results beside digests and options: in which precision, and in which blocks
    where not the checkpoint's own."""
    told = {"dtypes": [config.target.precision, config.drafter.dtype]}
    block_size = config.target.block_size
    return told if block_size is None else told | {"block_size": block_size}


def decode_settings(report: Report) -> dict[tuple[str, str], Row]:
    """Every setting on every task, by the setting's key and the task."""
    found: dict[tuple[str, str], Row] = {}
    runs = [(setting, task) for setting in report.settings for task in report.config.tasks]
    with stage("decode") as show:
        for index, (setting, task) in enumerate(runs):
            found[setting.key, task] = _decode(report, setting, task)
            show(index + 1, len(runs))
    return found


def _decode(report: Report, setting: Setting, task: str) -> Row:
    config = report.config
    target = {"target": report.digests(setting.pair)["target"]}
    facts: dict[str, Any] = {
        "digests": report.digests(setting.pair) if setting.options.drafts else target,
        **runs_as(config),
        "options": setting.options.model_dump(),
        "problems": [task, setting.count, config.problem_seed],
        "copied": setting.copied,
    } | ({"slots": "exact"} if setting.pair == EXACT_SLOTS else {})
    # Tables share what they have in common: it is decoded once.
    path = report.out / "decode" / f"{task}-{short_digest(facts)}.json"
    row = kept(path, facts)
    if row is None:
        engine = report.engine(setting.pair, setting.copied)
        row = keep(path, facts, decoded(engine, report.asked(task, setting.count), setting.options))
    return row


def measure_fidelity(report: Report) -> list[Row]:
    """One row a pair and number of layers, with its values by step."""
    pairs = [MAIN, *map(str, range(len(report.config.pairs)))]
    with stage("fidelity") as show:
        rows: list[Row] = []
        for index, pair in enumerate(pairs):
            rows += _fidelity(report, pair)
            show(index + 1, len(pairs))
    return rows


def _fidelity(report: Report, pair: str) -> list[Row]:
    config, asked_for = report.config, report.config.fidelity
    path = report.out / "fidelity" / f"{pair}.json"
    facts = {"digests": report.digests(pair), "fidelity": asked_for.model_dump()}
    facts |= {"seed": config.problem_seed, "tasks": config.tasks, "limit": config.max_new_tokens}
    facts |= runs_as(config)
    rows = kept(path, facts)
    if rows is None:
        rows = keep(path, facts, {"rows": _measure(report, report.engine(pair))})
    return rows["rows"]


def _measure(report: Report, engine: Engine) -> list[Row]:
    assert isinstance(engine.target, Target), "fidelity needs target.tp 1, target.forwards plain"
    model, spec = engine.target.model, engine.target.spec
    depths = sorted({n for n in report.config.fidelity.layers if n < spec.num_layers})
    targets = [*(first_layers(model, depth) for depth in depths), engine.target]
    slots: list[list[Slot]] = [[] for _ in targets]
    options = DecodeOptions(max_new_tokens=report.config.max_new_tokens)
    for task in report.config.tasks:
        for problem in report.asked(task, report.config.fidelity.problems):
            (written,) = engine.generate([PromptRow(id=problem.id, prompt=problem.prompt)], options)
            text = [*written["prompt_ids"], *written["token_ids"]]
            found = measure_text(targets, small_of(engine), text, len(written["prompt_ids"]))
            for own, new in zip(slots, found, strict=True):
                own += new
    labels = [*depths, spec.num_layers]
    return [
        {"target": engine.folder.name, "block": spec.block_size, "layers": depth}
        | summarize(own)
        | {"by_step": by_step(own)}
        for depth, own in zip(labels, slots, strict=True)
    ]


def summarize(slots: list[Slot]) -> Row:
    """Shares and divergences of slots."""
    gaps = [slot.divergence for slot in slots]
    return {
        "slots": len(slots),
        "divergence_mean": float(np.mean(gaps)),
        "divergence_median": float(np.median(gaps)),
        "divergence_p95": float(np.percentile(gaps, 95)),
        "same_argmax": float(np.mean([slot.agrees for slot in slots])),
        "accepted_masked": float(np.mean([slot.accepted_masked for slot in slots])),
        "accepted_exact": float(np.mean([slot.accepted_exact for slot in slots])),
    }


def by_step(slots: list[Slot]) -> Mapping[str, Row]:
    """The same for every step tau."""
    steps = sorted({slot.step for slot in slots})
    return {str(step): summarize([s for s in slots if s.step == step]) for step in steps}
