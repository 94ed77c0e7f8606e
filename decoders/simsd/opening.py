"""Finding, checking and loading the small model of a pair."""

import sys
from pathlib import Path

from decoders.simsd.small_model import SmallModel
from drafters.config import DrafterConfig
from models.checkpoint import BUNDLED, find_checkpoint, read_spec
from models.config import TargetConfig
from models.devices import check_device
from models.full_target import FullTarget
from models.loading import load_model
from models.opening import open_target
from models.spec import TargetSpec
from models.text import vocabulary_digest

BUNDLED_SMALL = BUNDLED / "sdar-nano"


def find_small_model(drafter: DrafterConfig, target_folder: Path) -> Path:
    """The checkpoint named by ``drafter.small`` or ``drafter.path``, else ``drafter`` in the
    target's folder, else the bundled one."""
    key = "small" if drafter.small is not None else "path"
    path = getattr(drafter, key)
    if path is not None:
        try:
            return find_checkpoint(path)
        except ValueError as error:
            raise ValueError(str(error).replace("target.path", f"drafter.{key}", 1)) from error
    beside = target_folder / "drafter"
    return beside if (beside / "config.json").exists() else BUNDLED_SMALL


def check_pair(folder: Path, target_folder: Path, spec: TargetSpec) -> TargetSpec:
    """The small model's spec; ``ValueError`` unless it can draft for the target: both
    block-causal, predicting the same position, of one block size and one vocabulary."""
    small = read_spec(folder)
    for name, model in (("target", spec), ("drafter", small)):
        if (model.topology, model.prediction) != ("block_causal", "same"):
            raise ValueError(
                f"method simsd: the {name} ({model.family}) is {model.topology} and predicts the "
                f"{model.prediction} position; valid: block_causal, same (SDAR, LLaDA2)"
            )
    if small.block_size != spec.block_size:
        raise ValueError(
            f"drafter {folder.name} has blocks of {small.block_size}, the target of "
            f"{spec.block_size}: a pair needs one block size"
        )
    same_ids = (small.vocab_size, small.mask_token_id) == (spec.vocab_size, spec.mask_token_id)
    if not same_ids or vocabulary_digest(folder) != vocabulary_digest(target_folder):
        raise ValueError(
            f"drafter {folder.name} has another vocabulary than the target: a pair needs one"
        )
    return small


def open_small_model(target_folder: Path, spec: TargetSpec, drafter: DrafterConfig) -> SmallModel:
    """The checked small model of a target, on its device, in the drafter's dtype."""
    folder = find_small_model(drafter, target_folder)
    if folder == BUNDLED_SMALL:
        print(f"drafter: the bundled small model ({folder})", file=sys.stderr)
    check_pair(folder, target_folder, spec)
    check_device(drafter.device, "drafter.device")
    where = TargetConfig(path=str(folder), dtype=drafter.dtype, device=drafter.device)
    opened = open_target(load_model(where))
    assert not isinstance(opened, FullTarget), "checked"
    return SmallModel(opened)
