"""Draft-free traces of bundled problems, made once: what drafters learn from and reports replay."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from decoders.engine import Engine
from decoders.options import DecodeOptions, Temperature
from decoders.prompts import PromptRow
from decoders.trace import Trace
from decoders.trace_store import TraceManifest, TraceStore
from models.checkpoint import find_checkpoint, target_spec
from models.config import TargetConfig
from models.digests import digest
from models.loading import load_model
from models.opening import open_target
from tasks.bundled import problems
from tasks.problem import Problem, Split

PART_SIZE = 32


class Recording(BaseModel):
    """``count`` problems of each task, decoded by the standard rule with ``cap`` or, where ``tau``
    is given, by threshold decoding."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    tasks: tuple[str, ...] = ("words", "code")
    split: Split = "train"
    count: int
    seed: int
    cap: float = 1.0
    tau: float | None = None
    temperature: Temperature = 0.0

    @property
    def options(self) -> DecodeOptions:
        """The draft-free rule."""
        if self.tau is not None:
            return DecodeOptions(method="threshold", tau=self.tau, temperature=self.temperature)
        return DecodeOptions(method="standard", cap=self.cap, temperature=self.temperature)


@dataclass(frozen=True)
class Source:
    """An open target that records: which one, and its draft-free runs."""

    target: TargetConfig
    record: Callable[[Sequence[PromptRow], DecodeOptions], Iterable[Trace]]
    hidden_size: int = 0
    """Of the hidden states that it records; 0: none."""


def record_all(
    recordings: tuple[Recording, ...],
    target: TargetConfig,
    root: Path,
    report: Callable[[dict], None],
    hidden: bool = False,
) -> list[TraceStore]:
    """Traces of every recording under ``root``, with ``hidden`` states if asked for; what lies
    there already is kept."""
    folder = find_checkpoint(target.path)
    engine = Engine(folder, open_target(load_model(target)), {})
    size = engine.target.spec.hidden_size if hidden else 0
    source = Source(target, partial(engine.record, hidden=hidden), size)
    return [_record(source, recording, root, report) for recording in recordings]


def _record(
    source: Source, recording: Recording, root: Path, report: Callable[[dict], None]
) -> TraceStore:
    asked = [
        problem
        for task in recording.tasks
        for problem in problems(task, recording.split, recording.count, recording.seed)
    ]
    # Which problems; how they are decoded stands in the manifest's rule.
    asked_json = recording.model_dump_json(exclude={"temperature", "tau"})
    return record_problems(
        source,
        root / recording.name,
        asked,
        recording.options,
        blake2b(asked_json.encode(), digest_size=8).hexdigest(),
        lambda done, of: report({"recording": recording.name, "done": done, "of": of}),
    )


def record_problems(
    source: Source,
    folder: Path,
    asked: Sequence[Problem],
    options: DecodeOptions,
    prompts_digest: str,
    report: Callable[[int, int], None],
) -> TraceStore:
    """Traces of ``asked`` by the draft-free rule of ``options``, in ``folder``; those that lie
    there are kept. ``report(done, of)`` after every part."""
    store = open_store(source.target, folder, options, prompts_digest, source.hidden_size)
    parts = missing_parts(store, asked)
    done = len(asked) - sum(map(len, parts))
    for part in parts:
        store.append(record_part(source.record, part, options))
        done += len(part)
        report(done, len(asked))
    return store


def open_store(
    target: TargetConfig,
    folder: Path,
    options: DecodeOptions,
    prompts_digest: str,
    hidden_size: int = 0,
) -> TraceStore:
    """The store in ``folder`` of draft-free traces of a target, made if there is none."""
    spec = target_spec(target)
    manifest = TraceManifest(
        target=target.path,
        target_digest=digest(find_checkpoint(target.path)),
        prompts_digest=prompts_digest,
        dtype=target.precision,
        block_size=spec.block_size,
        mask_token_id=spec.mask_token_id,
        rule=options.commit_rule(),
        seed=options.seed,
        hidden_size=hidden_size,
    )
    return TraceStore.create(folder, manifest)


def missing_parts(store: TraceStore, asked: Sequence[Problem]) -> list[list[PromptRow]]:
    """The problems that a store lacks, in the parts in which they are recorded."""
    done = store.recorded_ids()
    missing = [PromptRow(id=p.id, prompt=p.prompt) for p in asked if p.id not in done]
    return [missing[first : first + PART_SIZE] for first in range(0, len(missing), PART_SIZE)]


def record_part(
    record: Callable[[Sequence[PromptRow], DecodeOptions], Iterable[Trace]],
    part: Sequence[PromptRow],
    options: DecodeOptions,
) -> list[Trace]:
    """Traces of one part, in the order of its prompts."""
    batched = options.model_copy(update={"batch_size": PART_SIZE // 2})
    found = {trace.request.id: trace for trace in record(part, batched)}
    return [found[row.id] for row in part]
