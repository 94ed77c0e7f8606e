"""What proposing costs: one round's drafts against one single-copy forward of the target.

Behind every state of a draft-free run both are timed in turn, so that they share the machine's
moods; ``ratio`` is drafting over forward, paired by state.

    python -m benchmarks.drafting --prompts prompts.jsonl --method order --budgets 8,20 --out d.json
"""

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import numpy as np
import torch
import typer

from actors.loading import load_target
from benchmarks.bare_forwards import seconds_of
from benchmarks.machine import machine, versions
from benchmarks.paired import quartiles, write_report
from cluster.configuration import RunConfig
from cluster.console import progress, show_table
from cluster.short_options import configured
from decoders.loop import Decoder, decode
from decoders.options import DecodeOptions
from decoders.prompts import build_request
from decoders.proposers.base import Proposer, View
from decoders.proposers.registry import find_drafter, open_proposers
from decoders.request import Request
from decoders.rules import Step
from decoders.sequence import Sequence as Decoded
from decoders.stale import Stale
from decoders.state import State, fill, masked_positions
from models.checkpoint import find_checkpoint
from models.digests import digest
from models.opening import AnyTarget
from models.target import NO_PARENT, CopyBatch
from models.text import open_codec
from tasks.files import read_prompts


class Meter:
    """An observer of a draft-free run that times drafting and a forward behind its states."""

    def __init__(
        self, target: AnyTarget, proposer: Proposer, options: DecodeOptions, budgets: Sequence[int]
    ) -> None:
        self.target = target
        self.proposer = proposer
        self.views = [options.model_copy(update={"budget": budget}) for budget in budgets]
        self.forward_seconds: list[float] = []
        self.draft_seconds: list[list[float]] = []
        self.drafts: list[list[int]] = []

    def observe(self, sequence: Decoded, state: State, stale: Stale, step: Step) -> None:
        root = fill(state, step)
        if sequence.end.finished(root):
            return
        rows = torch.tensor(masked_positions(root, sequence.end.mask_id))
        batch = CopyBatch([sequence.slot], torch.tensor([root]), [NO_PARENT], [False], rows)
        device = self.target.device.type
        self.forward_seconds.append(seconds_of(lambda: self.target.forward(batch), device))
        seconds, drafts = [], []
        for options in self.views:
            view = View(root, stale, options, sequence.end)
            started = perf_counter()
            (found,) = self.proposer.propose([view])
            seconds.append(perf_counter() - started)
            drafts.append(len(found))
        self.draft_seconds.append(seconds)
        self.drafts.append(drafts)


def measure(target: AnyTarget, meter: Meter, requests: Sequence[Request]) -> None:
    """Decode without drafts under the meter."""
    with progress("drafting") as report:
        for index, request in enumerate(requests):
            for _ in decode(Decoder(target, {}, observer=meter), [request], 1):
                pass
            report(index + 1, len(requests))


@configured
def main(
    config: RunConfig,
    prompts: Annotated[Path, typer.Option(metavar="FILE")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The report, as JSON.")],
    budgets: Annotated[str, typer.Option(metavar="N,N,...")] = "4,8,20",
) -> None:
    """Time one round's drafts against one single-copy forward."""
    if config.decode.method in ("standard", "threshold"):
        raise typer.BadParameter(f"--method {config.decode.method} drafts nothing")
    sizes = [int(size) for size in budgets.split(",")]
    folder, file = find_checkpoint(config.target.path), read_prompts(prompts)
    target, codec = load_target(config.target), open_codec(folder)
    method, options = config.decode.method, config.decode.draft_free()
    file.check(options, target.spec, codec)
    requests = [build_request(row, options, codec) for row in file.rows]
    proposer = open_proposers(folder, target.spec, config.drafter, {method})[method]
    measure(target, Meter(target, proposer, config.decode, sizes), requests[:1])  # warm-up
    meter = Meter(target, proposer, config.decode, sizes)
    measure(target, meter, requests)
    forward, drafting = np.array(meter.forward_seconds), np.array(meter.draft_seconds)
    rows: list[dict[str, Any]] = [
        {
            "budget": size,
            "n": len(forward),
            "drafts": float(np.mean([row[i] for row in meter.drafts])),
            "drafting_seconds": quartiles(drafting[:, i]),
            "forward_seconds": quartiles(forward),
            "ratio": quartiles(drafting[:, i] / forward),
        }
        for i, size in enumerate(sizes)
    ]
    drafter = find_drafter(method, folder, config.drafter)
    facts = {
        "versions": versions(),
        "machine": machine(),
        "target": config.target.model_dump() | {"digest": digest(folder)},
        "drafter": {"method": method, "path": str(drafter) if drafter else None},
        "prompts": {"path": str(prompts), "digest": file.digest},
        "decode": config.decode.model_dump(),
    }
    write_report(facts | {"budgets": rows}, out)
    show_table(str(out), [{k: row[k] for k in ("budget", "n", "drafts", "ratio")} for row in rows])


if __name__ == "__main__":
    typer.run(main)
