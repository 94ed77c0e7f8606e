"""Traces on disk: a manifest, and parts of a few dozen requests each, written whole or not at all.

A part is one safetensors file (states and rows of all its requests, concatenated) beside one JSON
file (the requests). Digests of target and prompts, and everything that decides a trajectory, stand
in the manifest, so that nobody replays what another target or rule recorded.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict
from safetensors.numpy import load_file, save_file

from decoders.options import DecodeOptions
from decoders.request import Request
from decoders.stale import Stale
from decoders.state import BlockEnd, masked_positions
from decoders.trace import Trace, TracedState, group_blocks

MANIFEST = "manifest.json"
_ROW_FIELDS = (
    "log_probs",
    "ids",
    "entropy",
    "log_odds",
    "candidates",
    "scores",
    "rank_log_odds",
)


class TraceManifest(BaseModel):
    """What was recorded, and with what."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int = 1
    target: str
    target_digest: str
    prompts_digest: str
    dtype: str
    block_size: int
    mask_token_id: int
    rule: dict[str, Any]
    seed: int


class TraceStore:
    """A folder of traces."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def create(cls, folder: Path, manifest: TraceManifest) -> "TraceStore":
        """A folder to record into; one that holds traces of another run is refused."""
        store = cls(folder)
        if (folder / MANIFEST).exists():
            old = store.manifest()
            for field in TraceManifest.model_fields:
                if getattr(old, field) != getattr(manifest, field):
                    raise ValueError(
                        f"{folder} holds traces with {field} {getattr(old, field)!r}, not "
                        f"{getattr(manifest, field)!r}; choose another folder"
                    )
            return store
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MANIFEST).write_text(manifest.model_dump_json(indent=2) + "\n")
        return store

    def manifest(self) -> TraceManifest:
        path = self.folder / MANIFEST
        if not path.exists():
            raise ValueError(f"{self.folder} holds no traces (no {MANIFEST})")
        return TraceManifest.model_validate_json(path.read_text())

    def recorded_ids(self) -> set[str]:
        """Ids of the requests that are on disk."""
        return {row["id"] for part in self._parts() for row in json.loads(part.read_text())}

    def append(self, traces: Sequence[Trace]) -> None:
        """Write one more part; it counts once its JSON file stands."""
        name = f"part-{len(self._parts()):05d}"
        save_file(_pack(traces), self.folder / f"{name}.safetensors")
        partial = self.folder / f"{name}.json.partial"
        partial.write_text(json.dumps([_describe(trace) for trace in traces]))
        partial.replace(self.folder / f"{name}.json")

    def load(self, limit: int | None = None) -> Iterator[Trace]:
        """The traces in recorded order, at most ``limit``."""
        left = limit if limit is not None else -1
        manifest = self.manifest()
        for part in self._parts():
            rows = json.loads(part.read_text())
            arrays = load_file(part.with_suffix(".safetensors"))
            for trace in _unpack(rows, arrays, manifest):
                if left == 0:
                    return
                left -= 1
                yield trace

    def _parts(self) -> list[Path]:
        return sorted(self.folder.glob("part-*.json"))


def _describe(trace: Trace) -> dict[str, Any]:
    request = trace.request
    return {
        "id": request.id,
        "prompt_ids": list(request.prompt_ids),
        "options": request.options.model_dump(exclude_unset=True),
        "noise_seed": request.noise_seed,
        "token_ids": list(trace.token_ids),
        "stop_reason": trace.stop_reason,
        "prefills": trace.prefills,
        "num_states": trace.nfe,
        "ends": [[b.start, *_end_row(b.end)] for b in trace.blocks],
    }


def _end_row(end: BlockEnd) -> list[Any]:
    return [end.prompt_end, end.limit, list(end.stop_ids)]


def _pack(traces: Sequence[Trace]) -> dict[str, np.ndarray]:
    """All states of a part, and all their rows, one after the other."""
    states = [(b.start, s) for trace in traces for b in trace.blocks for s in b.states]
    commits = [commit for _, s in states for commit in s.step]
    arrays = {
        "block_start": np.array([start for start, _ in states], dtype=np.int32),
        "state": np.array([s.state for _, s in states], dtype=np.int32),
        "step_size": np.array([len(s.step) for _, s in states], dtype=np.int32),
        "commits": np.array(commits, dtype=np.int32).reshape(-1, 2),
    }
    for name in _ROW_FIELDS:
        rows = [getattr(s.stale, name) for _, s in states]
        joined = np.concatenate(rows) if rows else np.zeros(0)
        arrays[name] = joined.astype(np.int32 if joined.dtype.kind == "i" else np.float32)
    return arrays


def _unpack(
    rows: list[dict[str, Any]], arrays: dict[str, np.ndarray], manifest: TraceManifest
) -> Iterator[Trace]:
    mask_id = manifest.mask_token_id
    next_state = next_row = next_commit = 0
    for row in rows:
        ends = {
            start: BlockEnd(mask_id, prompt_end, limit, tuple(stop_ids))
            for start, prompt_end, limit, stop_ids in row["ends"]
        }
        entries = []
        for index in range(next_state, next_state + row["num_states"]):
            state = tuple(arrays["state"][index].tolist())
            positions = np.array(masked_positions(state, mask_id), dtype=np.int64)
            own = slice(next_row, next_row + len(positions))
            size = int(arrays["step_size"][index])
            step = tuple(
                (int(p), int(t)) for p, t in arrays["commits"][next_commit : next_commit + size]
            )
            stale = Stale(positions, **{name: arrays[name][own] for name in _ROW_FIELDS})
            start = int(arrays["block_start"][index])
            entries.append((start, ends[start], TracedState(state, stale, step)))
            next_row, next_commit = own.stop, next_commit + size
        next_state += row["num_states"]
        request = Request(
            row["id"],
            tuple(row["prompt_ids"]),
            DecodeOptions.model_validate(row["options"]),
            row["noise_seed"],
        )
        yield Trace(
            request,
            group_blocks(entries),
            tuple(row["token_ids"]),
            row["stop_reason"],
            row["prefills"],
        )
