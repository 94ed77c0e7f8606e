"""The proposers that a target can be decoded with, by method name."""

import sys
from collections.abc import Callable
from pathlib import Path

from decoders.companion import Companion
from decoders.options import ORACLES
from decoders.proposers.base import Proposer
from decoders.proposers.chain import ChainProposer
from decoders.proposers.graph import BUNDLED_GRAPH, find_graph, open_graph_proposer
from decoders.proposers.oracle import open_oracles
from decoders.proposers.order import open_order_proposer
from decoders.proposers.sets import open_sets_proposer
from decoders.proposers.wtree import WideTreeProposer
from decoders.simsd.companion import SimSD
from decoders.simsd.opening import check_pair, find_small_model, open_small_model
from drafters.bundle import BUNDLED_ORDER, find_order_model
from drafters.config import DrafterConfig
from drafters.sets_bundle import BUNDLED_SETS, find_sets_model
from models.digests import digest
from models.spec import TargetSpec

UNTRAINED: dict[str, Callable[[], Proposer]] = {"chain": ChainProposer, "wtree": WideTreeProposer}
"""Proposers that nothing has to be loaded for: they are there whatever is asked for."""


def find_drafter(method: str, target_folder: Path, drafter: DrafterConfig) -> Path | None:
    """The folder or file that decides what ``method`` drafts; ``None`` where there is none."""
    if method == "order":
        return find_order_model(drafter.path, target_folder)
    if method == "sets":
        return find_sets_model(drafter.sets_path, target_folder)
    if method == "graph":
        return find_graph(drafter.graph, target_folder)
    if method == "simsd":
        return find_small_model(drafter, target_folder)
    return None


def describe_drafter(path: Path) -> dict[str, str]:
    """What a run says of the drafter at ``path``, as found by :func:`find_drafter`."""
    return {"name": path.name, "digest": digest(path)}


def check_drafters(
    target_folder: Path, spec: TargetSpec, drafter: DrafterConfig, methods: set[str]
) -> None:
    """Raise ``ValueError`` for a drafter that does not fit the target; a small model, which may be
    large, is not loaded for that."""
    open_proposers(target_folder, spec, drafter, methods)
    if "simsd" in methods:
        check_pair(find_small_model(drafter, target_folder), target_folder, spec)


def open_proposers(
    target_folder: Path, spec: TargetSpec, drafter: DrafterConfig, methods: set[str]
) -> dict[str, Proposer]:
    """Proposers for those of ``methods`` that draft; learned ones are loaded only when asked for.

    Raises ``ValueError`` when the drafter does not fit the target.
    """
    proposers: dict[str, Proposer] = {name: make() for name, make in UNTRAINED.items()}
    if methods & set(ORACLES):
        proposers |= open_oracles()
    if "graph" in methods:
        path = find_graph(drafter.graph, target_folder)
        if path == BUNDLED_GRAPH:
            print(f"drafter: the bundled draft graphs ({path})", file=sys.stderr)
        proposers["graph"] = open_graph_proposer(path)
    if "order" in methods:
        folder = find_order_model(drafter.path, target_folder)
        if folder == BUNDLED_ORDER:
            print(f"drafter: the bundled order model ({folder})", file=sys.stderr)
        proposers["order"] = open_order_proposer(
            folder, target_folder, spec.block_size, drafter.device
        )
    if "sets" in methods:
        folder = find_sets_model(drafter.sets_path, target_folder)
        if folder == BUNDLED_SETS:
            print(f"drafter: the bundled sets model ({folder})", file=sys.stderr)
        proposers["sets"] = open_sets_proposer(folder, target_folder, spec)
    return proposers


def open_drafters(
    target_folder: Path, spec: TargetSpec, drafter: DrafterConfig, methods: set[str]
) -> dict[str, Proposer | Companion]:
    """:func:`open_proposers`, and the small model where ``simsd`` is among ``methods``."""
    drafters: dict[str, Proposer | Companion] = {
        **open_proposers(target_folder, spec, drafter, methods)
    }
    if "simsd" in methods:
        drafters["simsd"] = SimSD(open_small_model(target_folder, spec, drafter))
    return drafters
