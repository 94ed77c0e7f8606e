"""Traces on disk: a manifest, and parts of a few dozen requests each, written whole or not at all.

Digests of target and prompts, and everything that decides a trajectory, stand in the manifest, so
that nobody replays what another target or rule recorded.

Format 1, for other programs. A folder holds::

    manifest.json            fields of TraceManifest
    part-00000.json          the requests of a part: a list, in recorded order
    part-00000.safetensors   their states and rows, one request after the other

A part counts once its JSON file stands. Every request there has ``id``, ``prompt_ids``,
``options`` (as given), ``noise_seed``, ``token_ids`` (the text), ``stop_reason``, ``prefills``,
``num_states`` (its share of the states) and ``ends``, a row for each block: absolute start, then
prompt end and limit counted from there, and the stop ids. The tensors, for S states, R rows (all
masked positions of all states, by state and then by position), C commits, L block positions::

    block_start   int32   [S]       absolute position of the block
    state         int32   [S, L]    token ids, the manifest's mask_token_id where masked
    step_size     int32   [S]       commits made from the state
    commits       int32   [C, 2]    position in the block, token id
    log_probs     float32 [R, <=32] top log-probabilities, untempered, falling
    ids           int32   [R, <=32] their tokens
    entropy       float32 [R]       of the whole row, in nats
    log_odds      float32 [R]       of the most likely token
    rank_log_odds float32 [R]       what the commit rule ranks by
    candidates    int32   [R, <=16] tokens in the order in which they would be drawn
    scores        float32 [R, <=16] what that order compares (noise included at T > 0)
    hidden        float16 [R, H]    the target's last hidden states; only where the manifest's
                                    ``hidden_size`` is H and not 0
"""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from decoders.options import DecodeOptions
from decoders.request import Request
from decoders.stale import Stale
from decoders.state import BlockEnd, masked_positions
from decoders.trace import Trace, TracedState, group_blocks
from models.invalid import one_line

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

    version: Literal[1] = 1
    target: str
    target_digest: str
    prompts_digest: str
    dtype: str
    block_size: int
    mask_token_id: int
    rule: dict[str, Any]
    seed: int
    hidden_size: int = 0
    """Of the hidden states that were kept; 0: none were."""


class TraceStore:
    """A folder of traces. Several processes may record into one: no request stands there twice."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ids: dict[Path, set[str]] = {}
        """Of the parts that were looked at; a part never changes."""

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
        _write_whole(folder / MANIFEST, manifest.model_dump_json(indent=2) + "\n")
        return store

    def manifest(self) -> TraceManifest:
        path = self.folder / MANIFEST
        if not path.exists():
            raise ValueError(f"{self.folder} holds no traces (no {MANIFEST})")
        try:
            return TraceManifest.model_validate_json(path.read_bytes())
        except ValidationError as error:
            raise ValueError(f"{path}: {one_line(error, TraceManifest)}") from error

    def recorded_ids(self) -> set[str]:
        """Ids of the requests that are on disk."""
        for part in self._parts():
            if part not in self._ids:
                self._ids[part] = {row["id"] for row in json.loads(part.read_bytes())}
        return set().union(*self._ids.values())

    def append(self, traces: Sequence[Trace]) -> None:
        """Write one more part, of those requests that nobody else has written meanwhile; it counts
        once its JSON file stands."""
        with self._alone():
            known = self.recorded_ids()
            new = [trace for trace in traces if trace.request.id not in known]
            if not new:
                return
            name = f"part-{len(self._parts()):05d}"
            arrays = _pack(new, self.manifest().hidden_size)
            save_file(arrays, self.folder / f"{name}.safetensors")
            described = json.dumps([_describe(trace) for trace in new])
            _write_whole(self.folder / f"{name}.json", described)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """While no other process writes here; a killed one lets go."""
        with (self.folder / ".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def load(self, limit: int | None = None) -> Iterator[Trace]:
        """The traces in recorded order, at most ``limit``."""
        traces = (trace for part in self.parts() for trace in self.load_part(part))
        return islice(traces, limit)

    def load_part(self, part: str, wanted: slice = slice(None)) -> Iterator[Trace]:
        """The traces of one of the :meth:`parts`, or some of them."""
        path = self.folder / f"{part}.json"
        rows = json.loads(path.read_bytes())
        tensors = path.with_suffix(".safetensors")
        try:
            arrays = load_file(tensors)
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{tensors} is no readable safetensors file: {error}") from error
        return _unpack(rows, arrays, self.manifest(), wanted)

    def requests(self, part: str) -> list[Request]:
        """The requests of one of the :meth:`parts`, without their states."""
        return [
            _read_request(row) for row in json.loads((self.folder / f"{part}.json").read_bytes())
        ]

    def parts(self) -> list[str]:
        """The names of what was written together, in recorded order; ``ValueError`` for a folder
        that holds no traces."""
        self.manifest()
        return [path.stem for path in self._parts()]

    def _parts(self) -> list[Path]:
        return sorted(self.folder.glob("part-*.json"))


def _write_whole(path: Path, text: str) -> None:
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


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


def _read_request(row: Mapping[str, Any]) -> Request:
    return Request(
        row["id"],
        tuple(row["prompt_ids"]),
        DecodeOptions.model_validate(row["options"]),
        row["noise_seed"],
    )


def _end_row(end: BlockEnd) -> list[Any]:
    return [end.prompt_end, end.limit, list(end.stop_ids)]


def _pack(traces: Sequence[Trace], hidden_size: int) -> dict[str, np.ndarray]:
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
    hidden = [s.stale.hidden for _, s in states if s.stale.hidden is not None]
    if hidden_size:
        assert len(hidden) == len(states), "every state was recorded with its hidden states"
        empty = np.zeros((0, hidden_size), dtype=np.float16)
        arrays["hidden"] = np.concatenate([empty, *hidden])
    return arrays


def _unpack(
    rows: list[dict[str, Any]],
    arrays: dict[str, np.ndarray],
    manifest: TraceManifest,
    wanted: slice,
) -> Iterator[Trace]:
    mask_id = manifest.mask_token_id
    fields = (*_ROW_FIELDS, "hidden") if manifest.hidden_size else _ROW_FIELDS
    ends = np.cumsum([0, *(row["num_states"] for row in rows)])
    states = arrays["state"].reshape(-1, manifest.block_size)
    row_ends = np.cumsum([0, *(states == mask_id).sum(axis=1)])
    commit_ends = np.cumsum([0, *arrays["step_size"]])

    def traced(index: int) -> TracedState:
        state = tuple(states[index].tolist())
        positions = np.array(masked_positions(state, mask_id), dtype=np.int64)
        own = slice(row_ends[index], row_ends[index + 1])
        stale = Stale(positions, **{name: arrays[name][own] for name in fields})
        commits = arrays["commits"][commit_ends[index] : commit_ends[index + 1]]
        return TracedState(state, stale, tuple((int(p), int(t)) for p, t in commits))

    for number in range(len(rows))[wanted]:
        row = rows[number]
        block_ends = {
            start: BlockEnd(mask_id, prompt_end, limit, tuple(stop_ids))
            for start, prompt_end, limit, stop_ids in row["ends"]
        }
        indices = range(ends[number], ends[number + 1])
        starts = arrays["block_start"][indices.start : indices.stop].tolist()
        entries = [
            (start, block_ends[start], traced(index))
            for start, index in zip(starts, indices, strict=True)
        ]
        yield Trace(
            _read_request(row),
            group_blocks(entries),
            tuple(row["token_ids"]),
            row["stop_reason"],
            row["prefills"],
        )
