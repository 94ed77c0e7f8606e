"""Recordings that a drafter learns from: draft-free traces of bundled problems, made once."""

from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from decoders.engine import Engine
from decoders.options import DecodeOptions
from decoders.prompts import PromptRow
from decoders.trace_store import TraceManifest, TraceStore
from models.checkpoint import digest, find_checkpoint, load_model
from models.config import TargetConfig
from models.target import Target
from tasks.bundled import problems
from tasks.problem import Split

PART_SIZE = 32


class Recording(BaseModel):
    """``count`` problems of each task, decoded by the standard rule with ``cap`` at T=0."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    tasks: tuple[str, ...] = ("words", "code")
    split: Split = "train"
    count: int
    seed: int
    cap: float = 1.0


def record_all(
    recordings: tuple[Recording, ...],
    target: TargetConfig,
    root: Path,
    report: Callable[[dict], None],
) -> list[TraceStore]:
    """Traces of every recording under ``root``; what lies there already is kept."""
    folder = find_checkpoint(target.path)
    engine = Engine(folder, Target(load_model(target)), {})
    return [_record(engine, recording, target, root, report) for recording in recordings]


def _record(
    engine: Engine,
    recording: Recording,
    target: TargetConfig,
    root: Path,
    report: Callable[[dict], None],
) -> TraceStore:
    options = DecodeOptions(method="standard", cap=recording.cap, batch_size=PART_SIZE // 2)
    asked = [
        problem
        for task in recording.tasks
        for problem in problems(task, recording.split, recording.count, recording.seed)
    ]
    rows = [PromptRow(id=problem.id, prompt=problem.prompt) for problem in asked]
    manifest = TraceManifest(
        target=target.path,
        target_digest=digest(engine.folder),
        prompts_digest=blake2b(recording.model_dump_json().encode(), digest_size=8).hexdigest(),
        dtype=target.dtype,
        block_size=engine.target.spec.block_size,
        mask_token_id=engine.target.spec.mask_token_id,
        rule=options.rule(),
        seed=options.seed,
    )
    store = TraceStore.create(root / recording.name, manifest)
    done = store.recorded_ids()
    missing = [row for row in rows if row.id not in done]
    for first in range(0, len(missing), PART_SIZE):
        store.append(engine.record(missing[first : first + PART_SIZE], options))
        recorded = len(rows) - len(missing) + first + PART_SIZE
        report({"recording": recording.name, "done": min(recorded, len(rows)), "of": len(rows)})
    return store
