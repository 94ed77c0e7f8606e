"""Counting what settings would have cost on recorded traces.

The settings of one method are replayed together, a few traces at a time, so that what is held in
memory grows with neither.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

from decoders.options import DecodeOptions
from decoders.proposers.base import Proposer
from decoders.replay_family import replay_settings
from decoders.request import Result
from decoders.trace_store import TraceStore
from tasks.processes import run_apart

SLICE = 8
"""Traces that a process replays together."""


class Counts(NamedTuple):
    """Sums over requests: ``verified`` rounds had drafts, of which ``accepted`` were gone through;
    ``draft_free_nfe`` is what the traces took."""

    n: int = 0
    nfe: int = 0
    forwards: int = 0
    commits: int = 0
    verified: int = 0
    accepted: int = 0
    draft_free_nfe: int = 0

    def with_more(self, other: "Counts") -> "Counts":
        """Of the requests of both."""
        return Counts(*map(sum, zip(self, other, strict=True)))

    def row(self) -> dict[str, Any]:
        """What a row says; ``nfe_ratio`` is draft-free NFE over the setting's."""
        return {
            "n": self.n,
            "nfe": self.nfe,
            "forwards": self.forwards,
            "nfe_ratio": round(self.draft_free_nfe / self.nfe, 4) if self.nfe else None,
            "tokens_per_forward": round(self.commits / self.nfe, 4) if self.nfe else None,
            "accepted_per_round": round(self.accepted / self.verified, 4) if self.verified else 0.0,
        }


def sum_results(results: Sequence[Result], draft_free_nfe: int) -> Counts:
    """The counts of one setting's results."""
    verified = [r.accepted for result in results for r in result.rounds if r.kind == "verify"]
    return Counts(
        n=len(results),
        nfe=sum(result.nfe for result in results),
        forwards=sum(result.forwards for result in results),
        commits=sum(result.commits for result in results),
        verified=len(verified),
        accepted=sum(verified),
        draft_free_nfe=draft_free_nfe,
    )


@dataclass(frozen=True)
class SliceJob:
    """Settings of one method, by number, over a few traces of a part."""

    folder: Path
    part: str
    wanted: slice
    settings: Mapping[int, DecodeOptions]
    proposer: Proposer | None


def count_slice(job: SliceJob) -> dict[int, Counts]:
    """The counts of every setting of the job."""
    traces = list(TraceStore(job.folder).load_part(job.part, job.wanted))
    draft_free_nfe = sum(trace.nfe for trace in traces)
    results = replay_settings(traces, list(job.settings.values()), job.proposer)
    return {
        number: sum_results(found, draft_free_nfe)
        for number, found in zip(job.settings, results, strict=True)
    }


def count_settings(
    store: TraceStore,
    settings: Mapping[int, DecodeOptions],
    proposers: Mapping[str, Proposer],
    processes: int,
    report: Callable[[int], None],
) -> Iterator[tuple[int, Counts]]:
    """The counts of every setting, by number, as soon as all its traces are in; ``report`` is told
    how many settings' work is done."""
    slices = [
        (part, slice(start, start + SLICE))
        for part in store.parts()
        for start in range(0, len(store.requests(part)), SLICE)
    ]
    by_method: defaultdict[str, dict[int, DecodeOptions]] = defaultdict(dict)
    for number, options in settings.items():
        by_method[options.method][number] = options
    jobs = [
        SliceJob(store.folder, part, wanted, of_method, proposers.get(method))
        for method, of_method in by_method.items()
        for part, wanted in slices
    ]
    found: defaultdict[int, list[Counts]] = defaultdict(list)
    done = 0
    # One slice is counted before another process has started.
    for counts in run_apart(count_slice, jobs, processes if len(slices) > 1 else 1):
        done += len(counts)
        report(done // len(slices))
        for number, each in counts.items():
            found[number].append(each)
            if len(found[number]) == len(slices):
                yield number, reduce(Counts.with_more, found.pop(number))
