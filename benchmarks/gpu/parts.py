"""The parts of the measurement, in the order in which they need each other."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from benchmarks.gpu import equality, ranks, syncs
from benchmarks.gpu.drafting import measure_drafting
from benchmarks.gpu.floors import Speeds, measure_speeds
from benchmarks.gpu.forwards import curve_of, measure_forwards, modes, one_copy_seconds
from benchmarks.gpu.plan import GpuPlan
from benchmarks.gpu.shapes import random_model
from benchmarks.gpu.shares import measure_shares
from benchmarks.gpu.timing import Row
from benchmarks.gpu.traces import Recorded, record
from benchmarks.gpu.what_if import Prices, measure_what_if, stated_prices
from decoders.proposers.base import Proposer
from decoders.proposers.registry import open_proposers
from drafters.config import DrafterConfig
from models.fusing import fuse
from models.opening import open_target
from models.target import Target

Report = Callable[[int, int], None]
TYPICAL_PREFIX = 1024
"""Of the forward that drafting is compared with."""


@dataclass
class Session:
    """What parts hand on to later ones."""

    plan: GpuPlan
    speeds: Speeds | None = None
    forwards: list[Row] = field(default_factory=list)
    drafting: list[Row] = field(default_factory=list)
    recorded: Recorded | None = None

    def measured_speeds(self) -> Speeds:
        self.speeds = self.speeds or measure_speeds(self.plan)
        return self.speeds

    def traces(self, report: Report) -> Recorded:
        self.recorded = self.recorded or record(self.plan, report)
        return self.recorded


def forwards_part(session: Session, report: Report) -> list[Row]:
    """Latency by copies and prefix beside the floors; on a GPU also with ``target.compile``."""
    plan, speeds = session.plan, session.measured_speeds()
    model = random_model(plan)
    for mode in modes(plan):
        target = open_target(model, forwards=mode)
        session.forwards += measure_forwards(target, mode, plan, speeds, report)
    if not plan.on_gpu:
        return session.forwards
    fuse(model)
    fused = measure_forwards(open_target(model), "graphs, fused", plan, speeds, report)
    return session.forwards + fused


def shares_part(session: Session, report: Report) -> list[Row]:
    """Shares of attention, feed-forward and head."""
    model, rows = random_model(session.plan), []
    for index, mode in enumerate(modes(session.plan)):
        target = open_target(model, forwards=mode)
        assert isinstance(target, Target)
        rows += measure_shares(target, mode, session.plan)
        report(index + 1, len(modes(session.plan)))
    return rows


def ranks_part(session: Session, report: Report) -> list[Row]:
    """The forwards on two ranks; nothing where there is one GPU."""
    if not ranks.enough_devices(session.plan):
        return []
    return ranks.measure_ranks(session.plan, session.measured_speeds())


def equality_part(session: Session, report: Report) -> list[Row]:
    """Equal outputs in low precision."""
    return equality.equality_rows(session.plan, modes(session.plan)[-1:], report)


def syncs_part(session: Session, report: Report) -> list[Row]:
    """Hidden waits; nothing without CUDA."""
    return syncs.measure_syncs(session.plan, report)


def drafting_part(session: Session, report: Report) -> list[Row]:
    """Drafting beside a forward of the shape, which must have been timed."""
    plan, recorded = session.plan, session.traces(report)
    if not session.forwards:
        raise ValueError("parts: drafting is compared with a forward; add forwards")
    one = one_copy_seconds(session.forwards, modes(plan)[-1], TYPICAL_PREFIX)
    session.drafting = measure_drafting(recorded, drafting_proposers(recorded, plan), plan, one)
    return session.drafting


def drafting_proposers(recorded: Recorded, plan: GpuPlan) -> dict[str, Proposer]:
    """By method and the device that drafts."""
    on_cpu = {method: recorded.engine.proposer(method) for method in ("chain", "order")}
    found = {f"{method} cpu": each for method, each in on_cpu.items() if each is not None}
    if plan.on_gpu:
        config = DrafterConfig(device=plan.device)
        opened = open_proposers(
            recorded.engine.folder, recorded.engine.target.spec, config, {"order"}
        )
        found[f"order {plan.device}"] = opened["order"]
    return found


def what_if_part(session: Session, report: Report) -> list[Row]:
    """Tokens a second of every method by replayed rounds."""
    prices = prices_of(session)
    rows = measure_what_if(session.traces(report), prices, session.plan, report)
    return [row | {"prices": prices.words} for row in rows]


def prices_of(session: Session) -> Prices:
    """Measured in this session, else stated."""
    if not session.forwards:
        return stated_prices()
    plan, mode = session.plan, modes(session.plan)[-1]
    drafting = {
        (row["proposer"].split()[0], row["cap"], row["budget"]): row["seconds"]["median"]
        for row in session.drafting
    }
    device = torch.cuda.get_device_name() if plan.on_gpu else "CPU"
    words = f"forwards of {plan.size} ({mode}, {plan.dtype}) measured on this {device}"
    words += f", blocks of {plan.block_size} (the traces': {plan.trace_block_size})"
    words += "; drafting measured" if drafting else "; drafting counted as free"
    return Prices(curve_of(session.forwards, mode), drafting, words)


PARTS: dict[str, Callable[[Session, Report], list[Row]]] = {
    "forwards": forwards_part,
    "shares": shares_part,
    "ranks": ranks_part,
    "equality": equality_part,
    "syncs": syncs_part,
    "drafting": drafting_part,
    "what-if": what_if_part,
}
