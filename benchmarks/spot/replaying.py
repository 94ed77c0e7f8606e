"""Replaying a cell's settings part by part, with the fate of every draft."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.spot.cells import Cell, Drafting
from benchmarks.spot.measures import Fate, candidate_ranks, fates
from benchmarks.spot.recording import load_traces
from benchmarks.spot.tally import Tally, merge, tally
from decoders.proposers.base import Draft, Proposer, View
from decoders.proposers.chain import ChainProposer
from decoders.proposers.graph import open_graph_proposer
from decoders.proposers.oracle import OracleProposer, open_oracles
from decoders.proposers.remembering import RememberingOrderProposer
from decoders.proposers.wtree import WideTreeProposer
from decoders.replay import replay
from decoders.stale import TOP_CANDIDATES
from decoders.state import State
from decoders.trace import Trace
from drafters.bundle import load_order_model

PART = 10
"""Problems that are replayed together: what the order model says of them is held in memory."""

Tallies = dict[Drafting | None, Tally]
"""By setting; ``None`` is the draft-free run."""


@dataclass(frozen=True)
class Drafters:
    """Where the learned proposers lie, and the target that they draft for."""

    target: Path
    order: Path | None
    graph: Path | None

    def open(self) -> dict[str, Proposer]:
        """A proposer of every method; the order model scores every state once."""
        proposers: dict[str, Proposer] = {"chain": ChainProposer(), "wtree": WideTreeProposer()}
        proposers |= open_oracles()
        if self.graph is not None:
            proposers["graph"] = open_graph_proposer(self.graph)
        if self.order is not None:
            proposers["order"] = RememberingOrderProposer(load_order_model(self.order, self.target))
        return proposers


class Watched:
    """A proposer that remembers what it drafted in every round."""

    def __init__(self, inner: Proposer) -> None:
        self.inner = inner
        self.rounds: list[tuple[View, list[Draft]]] = []

    def propose(self, views: Sequence[View]) -> list[list[Draft]]:
        found = self.inner.propose(views)
        self.rounds += zip(views, found, strict=True)
        return found


def replay_tally(traces: Sequence[Trace], drafting: Drafting, proposer: Proposer) -> Tally:
    """Exact counts of one setting, each trace by its own rule."""
    if isinstance(proposer, OracleProposer):
        proposer.futures.learn(traces)
    watched = Watched(proposer)
    results = replay(traces, drafting.over(traces[0].request.options), watched)
    return tally(results, round_fates(traces, watched.rounds), block_size(traces))


def draft_free_tally(traces: Sequence[Trace]) -> Tally:
    """The baseline's counts."""
    return tally(replay(traces, traces[0].request.options, None), (), block_size(traces))


def block_size(traces: Sequence[Trace]) -> int:
    return len(traces[0].blocks[0].states[0].state)


def round_fates(
    traces: Sequence[Trace], rounds: Sequence[tuple[View, list[Draft]]]
) -> list[list[Fate]]:
    """What became of the drafts of every round, read off the traces."""
    paths: dict[tuple[str, int], list[State]] = {
        (trace.request.id, block.start): [traced.state for traced in block.states]
        for trace in traces
        for block in trace.blocks
    }
    found = []
    for view, drafts in rounds:
        assert view.origin is not None
        path = paths[view.origin.request.id, view.origin.block_start]
        behind = path[path.index(view.root) + 1 :]
        found.append(fates(view.root, drafts, behind, view.end.mask_id))
    return found


@dataclass(frozen=True)
class ReplayJob:
    """All settings of a cell over one part of its problems."""

    path: Path
    facts: Mapping[str, Any]
    """What decides the result: the traces, the drafters, and the fields below."""
    draftings: tuple[Drafting, ...]
    traces: Path
    ids: tuple[str, ...]
    drafters: Drafters
    commits: int
    """How far the coverage looks ahead; 0 leaves it out."""

    def run(self) -> dict[str, Any]:
        traces = load_traces(self.traces, self.ids)
        proposers = self.drafters.open()
        return {
            "draft_free": draft_free_tally(traces).model_dump(),
            "drafted": [
                [drafting, replay_tally(traces, drafting, proposers[drafting.method]).model_dump()]
                for drafting in self.draftings
            ],
            "ranks": self._ranks(traces).tolist(),
        }

    def _ranks(self, traces: Sequence[Trace]) -> np.ndarray:
        blocks = [block for trace in traces for block in trace.blocks] if self.commits else []
        counted = (candidate_ranks(block.states, self.commits) for block in blocks)
        return sum(counted, np.zeros((self.commits, TOP_CANDIDATES + 1), dtype=np.int64))


@dataclass(frozen=True)
class Replayed:
    """A cell's counts over all its problems; ``ranks`` as of :func:`candidate_ranks`."""

    tallies: Tallies
    ranks: np.ndarray


def replay_jobs(
    cell: Cell,
    ids: Sequence[str],
    traces: Path,
    folder: Path,
    facts: Mapping[str, Any],
    drafters: Drafters,
    commits: int,
) -> list[ReplayJob]:
    """A job for every part of a cell; its result lies under ``folder``."""
    parts = [tuple(ids[start : start + PART]) for start in range(0, len(ids), PART)]
    return [
        ReplayJob(
            path=folder / cell.name / f"{index:04d}.json",
            facts={**facts, "ids": part, "draftings": cell.draftings, "commits": commits},
            draftings=cell.draftings,
            traces=traces,
            ids=part,
            drafters=drafters,
            commits=commits,
        )
        for index, part in enumerate(parts)
    ]


def gather(results: Sequence[Mapping[str, Any]]) -> Replayed:
    """The parts of one cell together."""
    parts: dict[Drafting | None, list[Tally]] = {}
    for result in results:
        parts.setdefault(None, []).append(Tally.model_validate(result["draft_free"]))
        for drafting, counts in result["drafted"]:
            parts.setdefault(Drafting(*drafting), []).append(Tally.model_validate(counts))
    tallies = {drafting: merge(each) for drafting, each in parts.items()}
    return Replayed(tallies, np.sum([result["ranks"] for result in results], axis=0))
