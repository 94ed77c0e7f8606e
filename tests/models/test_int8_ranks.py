"""Two ranks in two processes hold the int8 weights of one rank, and write its text."""

import multiprocessing
from pathlib import Path
from typing import Any

import torch

from decoders.forwarder import Forwarder
from decoders.loop import Decoder, decode
from decoders.request import Request
from models.checkpoint import save_checkpoint
from models.config import TargetConfig
from models.leading import LeadingTarget, follow
from models.loading import load_model
from models.opening import open_target
from models.ranks import Ranks, join_ranks, leave_ranks, open_store, reach_store
from models.transformer import Transformer
from tests.conftest import tiny_model
from tests.reference.families import family_spec
from tests.reference.grid import draft
from tests.reference.running import prompt_of, tiny_proposers

FAMILIES = ["sdar", "Dream"]


def load(folder: Path, family: str, ranks: Ranks | None = None) -> Transformer:
    path = str(folder / f"{family}-b4")
    return load_model(
        TargetConfig(path=path, quantize="int8", tp=ranks.size if ranks else 1), ranks
    )


def follower(port: int, folder: Path) -> None:
    torch.set_num_threads(1)
    ranks = join_ranks(reach_store(port), rank=1, size=2, device="cpu")
    for family in FAMILIES:
        follow(open_target(load(folder, family, ranks), ranks), ranks)
    leave_ranks()


def numbers(parameter: Any) -> torch.Tensor:
    """What a parameter holds: its int8 numbers, where it has some."""
    return getattr(parameter, "qdata", parameter)


def outcome(target: Forwarder) -> tuple[object, ...]:
    request = Request("0", prompt_of(5), draft("chain", 4, 0.0, 1.0, "top1"))
    (result,) = decode(Decoder(target, tiny_proposers()), [request], 1)
    return result.token_ids, result.rounds


def test_two_ranks_hold_the_numbers_of_one_and_write_its_text(tmp_path: Path) -> None:
    for family in FAMILIES:
        model = tiny_model(family_spec(family), torch.float32)
        save_checkpoint(model, tmp_path / f"{family}-b4", "float32")
    store = open_store()
    context = multiprocessing.get_context("spawn")
    child = context.Process(target=follower, args=(store.port, tmp_path), daemon=True)
    child.start()
    ranks = join_ranks(store, rank=0, size=2, device="cpu")
    for family in FAMILIES:
        share, whole = load(tmp_path, family, ranks), load(tmp_path, family)
        mine = dict(share.named_parameters())
        for name, parameter in whole.named_parameters():
            held, all_of_it = numbers(mine[name]), numbers(parameter)
            first_part = tuple(slice(size) for size in held.shape)
            assert torch.equal(held, all_of_it[first_part]), name
        leading = LeadingTarget(open_target(share, ranks), ranks)
        two, one = outcome(leading), outcome(open_target(whole))
        leading.stop()
        assert two == one, family
    child.join(20)
    assert child.exitcode == 0
    leave_ranks()
