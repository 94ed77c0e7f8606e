"""The proposers that a target can be decoded with, by method name."""

import sys
from pathlib import Path

from decoders.proposers.base import Proposer
from decoders.proposers.chain import ChainProposer
from decoders.proposers.order import open_order_proposer
from drafters.bundle import BUNDLED_ORDER, find_order_model
from drafters.config import DrafterConfig
from models.spec import TargetSpec


def open_proposers(
    target_folder: Path, spec: TargetSpec, drafter: DrafterConfig, methods: set[str]
) -> dict[str, Proposer]:
    """Proposers for those of ``methods`` that draft; learned ones are loaded only when asked for.

    Raises ``ValueError`` when the drafter does not fit the target's block size.
    """
    proposers: dict[str, Proposer] = {"chain": ChainProposer()}
    if "order" in methods:
        folder = find_order_model(drafter.path, target_folder)
        if folder == BUNDLED_ORDER:
            print(f"drafter: the bundled order model ({folder})", file=sys.stderr)
        proposers["order"] = open_order_proposer(folder, spec.block_size)
    return proposers
