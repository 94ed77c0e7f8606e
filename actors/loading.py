"""Opening a target with its drafters: whole in this process, or one rank's share of it."""

from collections.abc import Iterable
from pathlib import Path

from decoders.engine import Engine
from decoders.options import METHODS
from decoders.proposers.registry import open_drafters
from drafters.config import DrafterConfig
from models.cache_size import cache_size
from models.checkpoint import find_checkpoint, target_spec
from models.config import TargetConfig
from models.devices import find_device
from models.fitting import check_room
from models.fusing import fuse
from models.int8 import check_int8
from models.loading import load_model
from models.opening import AnyTarget, open_target
from models.ranks import Ranks
from models.tensor_parallel import check_tensor_parallel


def open_engine(
    target: TargetConfig, drafter: DrafterConfig, methods: Iterable[str] = METHODS
) -> Engine:
    """A whole target in this process, with the drafters that ``methods`` need."""
    if target.tp != 1:
        raise ValueError(f"target.tp {target.tp}: one process holds one rank; valid here: 1")
    if drafter.placement != "target":
        raise ValueError(f"drafter.placement {drafter.placement!r}: valid in one process: target")
    folder, loaded = find_checkpoint(target.path), load_target(target)
    return Engine(folder, loaded, open_drafters(folder, loaded.spec, drafter, set(methods)))


def load_target(config: TargetConfig, ranks: Ranks | None = None) -> AnyTarget:
    """A target on its device, or the share of one of its ``ranks``."""
    model = load_model(config, ranks)
    if config.compile:
        fuse(model)
    return open_target(model, ranks, config.forwards)


def check_target(config: TargetConfig) -> None:
    """Raise ``ValueError``, without loading it, for a target that this configuration cannot open:
    no such checkpoint, a number of ranks that does not split it evenly, or weights that cannot be
    quantised."""
    spec = target_spec(config)
    check_tensor_parallel(spec, config.tp)
    check_int8(spec, config)


def check_ranks_fit(config: TargetConfig) -> None:
    """Raise ``ValueError``, without loading it, for a target whose ranks this machine has no room
    for: together on the CPU, each on a GPU of its own."""
    device = find_device(config.device)
    check_room(target_spec(config), config, device, config.tp if device.is_shared else 1)


def cache_tokens(config: TargetConfig, max_batch: int, wanted: int | None) -> int | None:
    """Tokens of prefix cache beside a loaded target (:mod:`models.cache_size`)."""
    return cache_size(target_spec(config), config, find_device(config.device), max_batch, wanted)


def absolute_paths(
    target: TargetConfig, drafter: DrafterConfig
) -> tuple[TargetConfig, DrafterConfig]:
    """The same configurations for processes in other working directories, and on other hosts: the
    name of a bundled target, or a hub id, stays a name, which is the same everywhere."""
    folder = find_checkpoint(target.path)
    if folder == Path(target.path):
        target = target.model_copy(update={"path": str(folder.resolve())})
    named = drafter.model_dump(include={"path", "small", "sets", "graph"}, exclude_none=True)
    absolute = {
        name: str(Path(path).resolve())
        for name, path in named.items()
        if name not in ("path", "small") or Path(path).exists()
    }
    return target, drafter.model_copy(update=absolute)
