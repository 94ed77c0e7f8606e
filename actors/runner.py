"""Whatever decodes: a target in this process, or a group of actors; the same rows either way."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from actors.loading import open_engine
from actors.memory import peak_memory, reset_peak_memory
from decoders.engine import Engine
from decoders.loop import decode
from decoders.options import DecodeOptions
from decoders.prompts import PromptRow
from decoders.trace import Trace, TraceRecorder
from drafters.config import DrafterConfig
from models.checkpoint import find_checkpoint, target_spec
from models.config import TargetConfig
from models.spec import TargetSpec
from models.text import TextCodec, open_codec

if TYPE_CHECKING:
    from actors.target_group import TargetGroup

BATCHES_A_CALL = 4
"""Batches of rows that a group is asked for at once."""

Rows = Sequence[PromptRow]


class Recording(Protocol):
    """Yields the traces of draft-free runs; ``hidden``: with the target's hidden states."""

    def __call__(
        self, rows: Rows, options: DecodeOptions, hidden: bool = False
    ) -> Iterator[Trace]: ...


@dataclass(frozen=True)
class Runner:
    """An open target. ``decode`` takes prompt rows, options and whether to trace, and yields output
    rows as they finish; ``record`` yields the traces of draft-free runs."""

    folder: Path
    spec: TargetSpec
    codec: TextCodec | None
    decode: Callable[[Rows, DecodeOptions, bool], Iterator[dict[str, Any]]]
    record: Recording
    reset_peak_memory: Callable[[], None]
    peak_memory: Callable[[], int]
    """Bytes at the peak since the last reset (of rank 0, and of its whole life, in a group)."""


def needs_group(target: TargetConfig, drafter: DrafterConfig) -> bool:
    """Whether several processes are asked for, and so a connection to Ray."""
    return target.tp > 1 or drafter.placement == "actor"


@contextmanager
def open_runner(
    target: TargetConfig, drafter: DrafterConfig, methods: set[str], on_cluster: bool = False
) -> Iterator[Runner]:
    """A target with the drafters that ``methods`` need, for the length of a ``with`` block.

    One rank with its drafter beside it lives in this process, unless ``on_cluster``; anything else
    in a target group of the connected Ray cluster.
    """
    if not (on_cluster or needs_group(target, drafter)):
        yield engine_runner(open_engine(target, drafter, methods), target.device)
        return
    # Imported here: decoding in one process does not need Ray.
    from actors.target_group import TargetGroup

    with TargetGroup.start(target, drafter, methods) as group:
        yield group_runner(group, target)


def engine_runner(engine: Engine, device: str) -> Runner:
    """A runner on an engine of this process."""

    def decode_rows(rows: Rows, options: DecodeOptions, trace: bool) -> Iterator[dict[str, Any]]:
        requests = engine.requests(rows, options)
        for result in engine.decode(requests, options.batch_size):
            yield engine.spell(result, trace)

    def record(rows: Rows, options: DecodeOptions, hidden: bool = False) -> Iterator[Trace]:
        recorder = TraceRecorder()
        requests = engine.requests(rows, options)
        for result in decode(engine.decoder(recorder, hidden), requests, options.batch_size):
            yield recorder.finish(result)

    return Runner(
        engine.folder,
        engine.target.spec,
        engine.codec,
        decode_rows,
        record,
        lambda: reset_peak_memory(device),
        lambda: peak_memory(device),
    )


def group_runner(group: "TargetGroup", target: TargetConfig) -> Runner:
    """A runner on a group of actors; what it is asked for at once comes back together."""
    folder = find_checkpoint(target.path)

    def parts(rows: Rows, options: DecodeOptions) -> Iterator[list[dict[str, Any]]]:
        size = BATCHES_A_CALL * options.batch_size
        for start in range(0, len(rows), size):
            yield [row.model_dump(exclude_none=True) for row in rows[start : start + size]]

    def decode_rows(rows: Rows, options: DecodeOptions, trace: bool) -> Iterator[dict[str, Any]]:
        for part in parts(rows, options):
            yield from group.generate(part, options, trace)

    def record(rows: Rows, options: DecodeOptions, hidden: bool = False) -> Iterator[Trace]:
        for part in parts(rows, options):
            yield from group.record(part, options, hidden)

    on_cpu = target.device == "cpu"
    key = "peak_memory_bytes" if on_cpu else "peak_device_memory_bytes"
    return Runner(
        folder,
        target_spec(target),
        open_codec(folder),
        decode_rows,
        record,
        lambda: None,
        lambda: group.facts()[key],
    )
