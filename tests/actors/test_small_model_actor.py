"""SimSD's small model apart from its target: the same rounds, whatever was begun ahead."""

from pathlib import Path
from typing import Any

import pytest
import torch

from actors.drafter_actor import open_remote_drafters
from actors.loading import open_engine
from actors.small_model_actor import RemoteSmallModel
from actors.target_group import TargetGroup
from cluster.session import Resources
from decoders.companion import Companion
from decoders.options import DecodeOptions
from decoders.prompts import PromptRow
from decoders.request import Request
from decoders.simsd.companion import SimSD
from drafters.config import DrafterConfig
from models.checkpoint import save_checkpoint
from models.config import TargetConfig
from models.loading import load_model
from models.target import Target
from tests.conftest import tiny_model
from tests.reference.running import prompt_of, run

pytestmark = pytest.mark.ray

REQUESTS = [
    Request(
        f"{temperature}-{gamma}-{n}",
        prompt_of(3 * n, n),
        DecodeOptions(
            method="simsd",
            temperature=temperature,
            gamma=gamma,
            max_new_tokens=17,
            ignore_stop=True,
        ),
        noise_seed=n,
    )
    for temperature in (0.0, 1.0)
    for gamma in (0, 3)
    for n in range(2)
]


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model that agrees with the target now and then only."""
    folder = tmp_path_factory.mktemp("small") / "other-b4"
    save_checkpoint(tiny_model(dtype=torch.float32, seed=1), folder, dtype="float32")
    return folder


def opened(folder: Path, small: Path, ahead: bool = True) -> tuple[Target, dict[str, Companion]]:
    config = TargetConfig(path=str(folder), dtype="float64")
    target = Target(load_model(config))
    drafter = DrafterConfig(path=str(small), dtype="float64", placement="actor", ahead=ahead)
    remote = open_remote_drafters(folder, target.spec, drafter, {"simsd"})["simsd"]
    assert isinstance(remote, SimSD)
    return target, {"simsd": remote}


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("own", [True, False], ids=["the target itself", "another model"])
def test_what_is_begun_ahead_is_used_or_rolled_back_and_changes_nothing(
    tiny_folder: Path, other: Path, own: bool
) -> None:
    small = tiny_folder if own else other
    target, remote = opened(tiny_folder, small)
    found = run(target, REQUESTS, remote, batch_size=3)
    config = TargetConfig(path=str(tiny_folder), dtype="float64")
    beside = open_engine(config, DrafterConfig(path=str(small), dtype="float64"), {"simsd"})
    local = run(Target(load_model(config)), REQUESTS, beside.proposers, batch_size=3)
    assert {k: r.rounds for k, r in found.items()} == {k: r.rounds for k, r in local.items()}
    companion = remote["simsd"]
    assert isinstance(companion, SimSD)
    drafting = companion.drafting
    assert isinstance(drafting, RemoteSmallModel)
    assert drafting.num_begun > 0
    assert (drafting.num_used > 0) if own else (drafting.num_used < drafting.num_begun)


def test_two_ranks_and_any_placement_give_the_rows_of_one_process(
    ray_cluster: Resources, tiny_folder: Path, other: Path
) -> None:
    rows = [{"id": str(n), "prompt_ids": list(range(4, 5 + n))} for n in range(3)]
    options = DecodeOptions(method="simsd", gamma=3, max_new_tokens=13, batch_size=2)
    target = TargetConfig(path=str(tiny_folder), dtype="float64")
    drafter = DrafterConfig(path=str(other), dtype="float64")
    engine = open_engine(target, drafter, {"simsd"})
    expected = engine.generate([PromptRow.model_validate(row) for row in rows], options, True)
    split = target.model_copy(update={"tp": 2})
    apart = drafter.model_copy(update={"placement": "actor"})
    for placed in (drafter, apart):
        with TargetGroup.start(split, placed, ["simsd"]) as group:
            assert timeless(group.generate(rows, options, trace=True)) == timeless(expected)


def timeless(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: row[key] for key in row if key != "seconds"} for row in rows]
