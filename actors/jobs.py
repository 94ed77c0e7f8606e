"""File jobs: prompts to results, prompts to traces. All input is checked before decoding starts;
an interrupted job goes on where it was."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from actors.runner import Runner, open_runner
from decoders.options import DecodeOptions
from decoders.proposers.registry import describe_drafter, find_drafter
from decoders.trace import Trace, check_recordable
from decoders.trace_store import TraceManifest, TraceStore
from drafters.config import DrafterConfig
from models.checkpoint import find_checkpoint, read_spec, target_spec
from models.config import TargetConfig
from models.digests import digest
from tasks.files import PromptFile, ResultsFile, read_prompts

PART_SIZE = 32
"""Requests of one trace part, written together."""

Report = Callable[[int, int], None]
"""``report(done, total)`` after every finished row."""


@dataclass(frozen=True)
class Totals:
    """What a job did; ``kept`` rows were there already and count nowhere else.

    ``seconds`` is wall time without loading, ``nfe`` as in the rows.
    """

    kept: int
    rows: int
    nfe: int
    tokens: int
    seconds: float
    approximate: bool
    """Whether the rows are not promised to be what the target itself writes by their rule."""

    def __str__(self) -> str:
        label = ", approximate" if self.approximate else ""
        kept = f"{self.kept} kept and " if self.kept else ""
        made = f"{self.rows} new rows, NFE {self.nfe}, {self.tokens} tokens"
        return f"{kept}{made}, {self.seconds:.1f} s{label}"


def decode_file(
    target: TargetConfig,
    drafter: DrafterConfig,
    options: DecodeOptions,
    prompts: Path,
    out: Path,
    trace: bool,
    report: Report,
    on_cluster: bool = False,
) -> Totals:
    """Decode a prompts file into a results file, rows in the order of the prompts.

    Rows that an interrupted run of the same settings left in ``out`` stay. Raises ``ValueError``
    for bad input, before anything is decoded.
    """
    file = read_prompts(prompts)
    with open_runner(target, drafter, {options.method}, on_cluster) as runner:
        file.check(options, runner.spec, runner.codec)
        # Digests read every byte of the weights: after whatever may be refused.
        run = describe_run(target, drafter, options)
        run |= {"prompts": {"digest": file.digest, "rows": len(file.rows)}, "trace": trace}
        rows = nfe = tokens = 0
        with ResultsFile(out, [row.id for row in file.rows], run) as results:
            started = perf_counter()
            for row in runner.decode(file.rows[results.num_kept :], options, trace):
                results.write(row)
                rows, nfe, tokens = rows + 1, nfe + row["nfe"], tokens + len(row["token_ids"])
                report(results.num_kept + rows, len(file.rows))
        seconds, approximate = perf_counter() - started, not options.promises_equality
        return Totals(results.num_kept, rows, nfe, tokens, seconds, approximate)


def describe_run(
    target: TargetConfig, drafter: DrafterConfig, options: DecodeOptions
) -> dict[str, Any]:
    """All but the prompts that decides the rows of a run; nothing that does not (ranks, batch)."""
    folder = find_checkpoint(target.path)
    told: dict[str, Any] = {
        "name": folder.name,
        "digest": digest(folder),
        "dtype": target.precision,
    }
    block_size = target_spec(target).block_size
    if block_size != read_spec(folder).block_size:  # the digest tells the checkpoint's own
        told["block_size"] = block_size
    run = {"target": told, "decode": options.model_dump(exclude={"batch_size"})}
    path = find_drafter(options.method, folder, drafter)
    if path is not None:
        run["drafter"] = describe_drafter(path)
        if options.masked and drafter.dtype != DrafterConfig().dtype:  # its drafts change the text
            run["drafter"]["dtype"] = drafter.dtype
    return run


def record_traces(
    target: TargetConfig,
    options: DecodeOptions,
    prompts: Path,
    out: Path,
    report: Report,
    hidden: bool = False,
    on_cluster: bool = False,
) -> Totals:
    """Record draft-free traces of a prompts file into a folder, going on behind those in it; with
    ``hidden``, with the target's hidden states.

    Raises ``ValueError`` for a method that drafts, and for a folder of another run's traces.
    """
    if options.method not in ("standard", "threshold"):
        raise ValueError(f"decode.method {options.method!r} drafts; valid: standard, threshold")
    check_recordable(options)
    file = read_prompts(prompts)
    with open_runner(target, DrafterConfig(), {options.method}, on_cluster) as runner:
        file.check(options, runner.spec, runner.codec)
        store = TraceStore.create(out, _manifest(runner, target, options, file, hidden))
        done = store.recorded_ids()
        missing = [row for row in file.rows if row.id not in done]
        kept, rows, nfe, tokens, started = len(done), 0, 0, 0, perf_counter()
        with PartWriter(store) as writer:
            for trace in runner.record(missing, options, hidden):
                writer.add(trace)
                rows, nfe, tokens = rows + 1, nfe + trace.nfe, tokens + len(trace.token_ids)
                report(kept + rows, len(file.rows))
    seconds, approximate = perf_counter() - started, not options.promises_equality
    return Totals(kept, rows, nfe, tokens, seconds, approximate)


class PartWriter:
    """Gathers traces into parts; what is gathered is written also when the job is interrupted."""

    def __init__(self, store: TraceStore) -> None:
        self.store = store
        self._part: list[Trace] = []

    def add(self, trace: Trace) -> None:
        """Take one finished trace."""
        self._part.append(trace)
        if len(self._part) == PART_SIZE:
            self._write()

    def __enter__(self) -> "PartWriter":
        return self

    def __exit__(self, *_: object) -> None:
        if self._part:
            self._write()

    def _write(self) -> None:
        part, self._part = self._part, []
        self.store.append(part)


def _manifest(
    runner: Runner, target: TargetConfig, options: DecodeOptions, file: PromptFile, hidden: bool
) -> TraceManifest:
    is_folder = (Path(target.path) / "config.json").exists()
    return TraceManifest(
        target=str(runner.folder.resolve()) if is_folder else target.path,
        target_digest=digest(runner.folder),
        prompts_digest=file.digest,
        dtype=target.precision,
        block_size=runner.spec.block_size,
        mask_token_id=runner.spec.mask_token_id,
        rule=options.commit_rule(),
        seed=options.seed,
        hidden_size=runner.spec.hidden_size if hidden else 0,
    )
