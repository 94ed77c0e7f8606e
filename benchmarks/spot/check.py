"""A report's configuration against what is really there, before anything is decoded."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.loading import check_target
from benchmarks.spot.config import SpotConfig
from benchmarks.spot.jobs import short_digest
from benchmarks.spot.recording import asked_of
from benchmarks.spot.replaying import Drafters
from decoders.draft_graph import load_graphs
from decoders.proposers.graph import find_graph
from decoders.proposers.order import open_order_proposer
from drafters.bundle import find_order_model
from models.checkpoint import find_checkpoint, target_spec
from models.digests import digest
from models.spec import TargetSpec
from models.text import has_tokenizer


@dataclass(frozen=True)
class Checked:
    """A configuration that can run. ``digests`` are those of the target and the drafters,
    ``problems`` is the digest of the held-out problems."""

    config: SpotConfig
    folder: Path
    """Of the target."""
    spec: TargetSpec
    drafters: Drafters
    digests: dict[str, Any]
    problems: str

    @property
    def live_methods(self) -> tuple[str, ...]:
        """What the open target must be able to draft with."""
        return self.config.main.methods if self.config.live.problems else ()


def check(config: SpotConfig) -> Checked:
    """Raise ``ValueError`` for a target or a drafter that cannot be used."""
    check_target(config.target)
    folder = find_checkpoint(config.target.path)
    if not has_tokenizer(folder):
        raise ValueError(
            f"target.path {config.target.path!r} has no tokenizer; the report's tasks are texts"
        )
    spec = target_spec(config.target)
    drafters = find_drafters(config, folder, spec)
    learned = {"order": drafters.order, "graph": drafters.graph}
    digests = {
        "target": digest(folder),
        "drafters": {name: digest(path) for name, path in learned.items() if path is not None},
    }
    asked = [p for task in config.tasks for p in asked_of(config, task, config.main.problems)]
    told = [[p.id, p.prompt, *p.gold] for p in asked]
    return Checked(config, folder, spec, drafters, digests, short_digest({"problems": told}))


def find_drafters(config: SpotConfig, folder: Path, spec: TargetSpec) -> Drafters:
    """The learned proposers that the report's methods need, opened once to see that they fit."""
    methods = {*config.main.methods, *config.sweeps.methods}
    order = graph = None
    if "order" in methods:
        order = find_order_model(config.drafter.path, folder)
        open_order_proposer(order, folder, spec.block_size)
    if "graph" in methods:
        graph = find_graph(config.drafter.graph, folder)
        load_graphs(graph)
    return Drafters(folder, order, graph)
