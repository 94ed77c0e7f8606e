"""What the loop costs: ``standard`` decoding against the bare target forwards that it makes.

One run is recorded (prefills, forwards with their copies, stores and logit rows); then the decoding
and the recorded calls with nothing around them are timed in turn, prompt by prompt.

    python -m benchmarks.bare_forwards --target sdar-tiny --prompts prompts.jsonl --out bare.json
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch import Tensor

from actors.loading import load_target
from benchmarks.machine import machine, versions
from benchmarks.paired import quartiles, write_report
from cluster.configuration import RunConfig
from cluster.console import progress, show_table
from cluster.short_options import configured
from decoders.forwarder import Forwarder
from decoders.loop import Decoder, decode
from decoders.prompts import build_request
from decoders.request import Request
from models.checkpoint import find_checkpoint
from models.digests import digest
from models.opening import AnyTarget
from models.target import CopyBatch
from models.text import open_codec
from tasks.files import read_prompts

Call = Callable[[], object]


class RecordingTarget:
    """A target that keeps every call, to make it again."""

    def __init__(self, target: AnyTarget) -> None:
        self.target = target
        self.spec = target.spec
        self.placement = target.placement
        self.calls: list[Call] = []

    def open_slot(self, slot: int, length: int = 0, refresh: int = 0) -> None:
        self._call(lambda: self.target.open_slot(slot, length, refresh))

    def close_slot(self, slot: int) -> None:
        self._call(lambda: self.target.close_slot(slot))

    def prefill(self, slot: int, tokens: Sequence[int]) -> None:
        self._call(lambda: self.target.prefill(slot, tokens))

    def forward(self, batch: CopyBatch) -> Tensor:
        self.calls.append(lambda: self.target.forward(batch))
        return self.target.forward(batch)

    def forward_with_hidden(self, batch: CopyBatch) -> tuple[Tensor, Tensor]:
        self.calls.append(lambda: self.target.forward_with_hidden(batch))
        return self.target.forward_with_hidden(batch)

    def adopt(self, slot: int, index: int) -> None:
        self._call(lambda: self.target.adopt(slot, index))

    def _call(self, call: Call) -> None:
        self.calls.append(call)
        call()


def run_standard(target: Forwarder, request: Request) -> None:
    """Decode one request and drop the result."""
    for _ in decode(Decoder(target, {}), [request], 1):
        pass


def record_calls(target: AnyTarget, request: Request) -> list[Call]:
    """The calls on the target that decoding ``request`` makes."""
    recording = RecordingTarget(target)
    run_standard(recording, request)
    return recording.calls


def seconds_of(work: Call, device: str) -> float:
    """Wall time of ``work``, until the device is done."""
    started = perf_counter()
    work()
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    return perf_counter() - started


def compare(
    target: AnyTarget, requests: Sequence[Request], repeats: int, report: Callable[[int, int], None]
) -> dict[str, Any]:
    """Seconds of both, paired by prompt and repeat; ``ratio`` is standard over bare."""
    device = target.device.type
    calls = [record_calls(target, request) for request in requests]

    def bare(index: int) -> None:
        for call in calls[index]:
            call()

    times = np.zeros((2, repeats, len(requests)))
    for repeat in range(repeats):
        for index, request in enumerate(requests):
            works = (lambda r=request: run_standard(target, r), lambda i=index: bare(i))
            first = (repeat + index) % 2
            for which in (first, 1 - first):
                times[which, repeat, index] = seconds_of(works[which], device)
            report(repeat * len(requests) + index + 1, repeats * len(requests))
    standard, raw = times
    return {
        "n": len(requests),
        "forwards": sum(len(c) - 2 for c in calls),  # all but opening and closing the slot
        "standard_seconds": quartiles(standard),
        "bare_seconds": quartiles(raw),
        "ratio": quartiles(standard / raw),
        "ratio_of_sums": float(np.median(standard, 0).sum() / np.median(raw, 0).sum()),
    }


@configured
def main(
    config: RunConfig,
    prompts: Annotated[Path, typer.Option(metavar="FILE")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The report, as JSON.")],
    repeats: Annotated[int, typer.Option(min=1)] = 5,
) -> None:
    """Time standard decoding against the bare forwards that it makes."""
    options = config.decode.draft_free()
    folder, file = find_checkpoint(config.target.path), read_prompts(prompts)
    target, codec = load_target(config.target), open_codec(folder)
    file.check(options, target.spec, codec)
    requests = [build_request(row, options, codec) for row in file.rows]
    with progress("bare forwards") as report:
        compare(target, requests[:1], 1, report)  # warm-up
        measured = compare(target, requests, repeats, report)
    facts = {
        "versions": versions(),
        "machine": machine(),
        "target": config.target.model_dump() | {"digest": digest(folder)},
        "prompts": {"path": str(prompts), "digest": file.digest},
        "decode": options.model_dump(),
        "repeats": repeats,
    }
    write_report(facts | measured, out)
    shown = ("n", "forwards", "ratio_of_sums", "ratio")
    show_table(str(out), [{key: measured[key] for key in shown}])


if __name__ == "__main__":
    typer.run(main)
