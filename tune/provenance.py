"""Where results come from: code, versions, machine, and digests of everything that was read."""

from typing import Any

from actors.target_group import TargetGroup
from benchmarks.machine import git_commit, machine, versions
from decoders.proposers.registry import find_drafter
from models.checkpoint import find_checkpoint
from models.digests import digest
from tune.config import SweepConfig
from tune.problems import ProblemSet


def identity(config: SweepConfig, problems: ProblemSet) -> dict[str, Any]:
    """What decides trial results beside the options."""
    folder = find_checkpoint(config.target.path)
    target = config.target
    found: dict[str, Any] = {
        "target": digest(folder),
        "dtype": target.precision,
        "device": target.device,
        "tp": target.tp,
        "problems": problems.digest,
        "drafter": None,
    }
    for method in config.space.methods:
        path = find_drafter(method, folder, config.drafter)
        if path is not None:
            found["drafter" if method == "order" else method] = digest(path)
    return found


def provenance(
    identity: dict[str, Any], group: TargetGroup, cluster: str, command: str
) -> dict[str, Any]:
    """Everything that a reader needs to judge or repeat the numbers."""
    facts = group.facts()
    kept = ("device", "dtype", "tp", "target", "peak_memory_bytes")
    return {
        "command": command,
        "git_commit": git_commit(),
        "versions": versions(),
        "machine": machine(),
        "cluster": cluster,
        "digests": identity,
        "target": {name: facts.get(name) for name in kept},
    }
