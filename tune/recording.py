"""Draft-free traces of every rule in the space, recorded once and kept between sweeps."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol

from decoders.options import DecodeOptions
from decoders.trace import Trace
from decoders.trace_store import MANIFEST, TraceManifest, TraceStore
from models.spec import TargetSpec
from tune.problems import ProblemSet

PART = 8
"""Problems that are recorded in one forward and stored together."""


class Recorder(Protocol):
    """What is used of a target group."""

    def record(
        self, rows: Sequence[Mapping[str, Any]], options: DecodeOptions, hidden: bool = False
    ) -> list[Trace]: ...


def trace_manifest(
    target: str, target_digest: str, dtype: str, spec: TargetSpec, prompts: str, rule: DecodeOptions
) -> TraceManifest:
    """What identifies the traces of one draft-free run; ``prompts`` is the problems' digest. Those
    of threshold decoding hold hidden states, which ``sets`` reads."""
    return TraceManifest(
        target=target,
        target_digest=target_digest,
        prompts_digest=prompts,
        dtype=dtype,
        block_size=spec.block_size,
        mask_token_id=spec.mask_token_id,
        rule=rule.commit_rule(),
        seed=rule.seed,
        hidden_size=spec.hidden_size if rule.over_threshold else 0,
    )


def open_traces(root: Path, manifest: TraceManifest) -> TraceStore:
    """The store of these traces: a folder named after everything that decides them, and so not
    after where the target lies, which may have moved since."""
    text = json.dumps(manifest.model_dump(exclude={"target"}), sort_keys=True)
    store = TraceStore(root / blake2b(text.encode(), digest_size=8).hexdigest())
    if (store.folder / MANIFEST).exists():
        manifest = manifest.model_copy(update={"target": store.manifest().target})
    return TraceStore.create(store.folder, manifest)


def record_missing(
    group: Recorder,
    store: TraceStore,
    problems: ProblemSet,
    rule: DecodeOptions,
    report: Callable[[int], None],
) -> None:
    """Record those problems that ``store`` lacks, part by part; ``report(n)`` after each."""
    done = store.recorded_ids()
    report(len(done))
    missing = [row for row in problems.rows if row["id"] not in done]
    options = rule.model_copy(update={"batch_size": PART})
    for part in _parts(missing):
        store.append(group.record(part, options, rule.over_threshold))
        report(len(part))


def _parts(rows: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    for first in range(0, len(rows), PART):
        yield rows[first : first + PART]
