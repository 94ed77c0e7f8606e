"""A pair that cannot work is refused at start, and says why."""

from pathlib import Path

import pytest
import torch

from actors.loading import open_engine
from decoders.simsd.companion import SimSD
from decoders.simsd.opening import check_pair, find_small_model
from drafters.config import DrafterConfig
from models.checkpoint import BUNDLED, read_spec, save_checkpoint
from models.config import TargetConfig
from models.spec import TargetSpec
from tests.conftest import tiny_model, tiny_spec
from tests.reference.families import family_spec


def saved(folder: Path, spec: TargetSpec) -> Path:
    save_checkpoint(tiny_model(spec, torch.float32, seed=1), folder, dtype="float32")
    return folder


def test_the_small_model_is_named_or_beside_the_target_or_bundled(tmp_path: Path) -> None:
    assert find_small_model(DrafterConfig(), tmp_path) == BUNDLED / "sdar-nano"
    assert find_small_model(DrafterConfig(path="sdar-tiny"), tmp_path) == BUNDLED / "sdar-tiny"
    beside = saved(tmp_path / "drafter", tiny_spec())
    assert find_small_model(DrafterConfig(), tmp_path) == beside
    own = DrafterConfig(path="an-order-model", small="sdar-nano")
    assert find_small_model(own, tmp_path) == BUNDLED / "sdar-nano"
    with pytest.raises(ValueError, match=r"drafter\.path 'nowhere' is neither"):
        find_small_model(DrafterConfig(path="nowhere"), tmp_path)


def test_other_blocks_and_other_vocabularies_are_refused(tmp_path: Path) -> None:
    target = saved(tmp_path / "target-b4", tiny_spec())
    longer = saved(tmp_path / "longer-b8", tiny_spec(8))
    with pytest.raises(ValueError, match="has blocks of 8, the target of 4"):
        check_pair(longer, target, read_spec(target))
    wider = saved(tmp_path / "wider-b4", tiny_spec(4, 30))
    with pytest.raises(ValueError, match="another vocabulary"):
        check_pair(wider, target, read_spec(target))
    same_sizes = read_spec(BUNDLED / "sdar-nano")
    with pytest.raises(ValueError, match="another vocabulary"):
        check_pair(BUNDLED / "sdar-nano", target, same_sizes)


@pytest.mark.parametrize("family", ["llada", "Dream"])
def test_a_target_that_sees_what_follows_is_refused(tmp_path: Path, family: str) -> None:
    small = saved(tmp_path / "small-b4", tiny_spec())
    with pytest.raises(ValueError, match=r"the target .* is bidirectional"):
        check_pair(small, small, family_spec(family))


def test_an_engine_opens_the_bundled_pair() -> None:
    engine = open_engine(TargetConfig(), DrafterConfig(), {"simsd"})
    companion = engine.proposers["simsd"]
    assert isinstance(companion, SimSD)
    with pytest.raises(ValueError, match=r"drafter\.device 'cuda'"):
        open_engine(TargetConfig(), DrafterConfig(device="cuda"), {"simsd"})
