"""Two ranks in two processes decode every family as one rank does."""

import multiprocessing
from pathlib import Path

import torch

from decoders.loop import Decoder, Forwarder, decode
from decoders.request import Request, Result
from models.checkpoint import save_checkpoint
from models.config import TargetConfig
from models.loading import load_model
from models.ranks import Ranks, join_ranks, leave_ranks, open_store, reach_store
from models.tensor_parallel import AnyTarget, LeadingTarget, follow, open_target
from tests.conftest import tiny_model
from tests.reference.families import FAMILIES, family_spec
from tests.reference.grid import draft
from tests.reference.running import prompt_of, tiny_proposers

DTYPE = torch.float32


def share(folder: Path, family: str, ranks: Ranks) -> AnyTarget:
    """One rank's slices, read from the family's own format."""
    config = TargetConfig(path=str(folder / family), dtype="float32", tp=ranks.size)
    return open_target(load_model(config, ranks), ranks)


def follower(port: int, folder: Path) -> None:
    torch.set_num_threads(1)
    ranks = join_ranks(reach_store(port), rank=1, size=2, device="cpu")
    for family in FAMILIES:
        follow(share(folder, family, ranks), ranks)
    leave_ranks()


def outputs(target: Forwarder) -> list[Result]:
    """Standard, threshold and drafted texts side by side, some behind a stored block."""
    requests = [
        Request(str(length), prompt_of(length), draft(method, 4, temperature, 1.0, "top1"), length)
        for length, method, temperature in (
            (0, "standard", 0.0),
            (3, "order", 1.0),
            (5, "threshold", 0.0),
            (9, "chain", 0.0),
        )
    ]
    results = decode(Decoder(target, tiny_proposers()), requests, batch_size=2)
    return sorted(results, key=lambda result: result.request.id)


def test_two_ranks_equal_one_on_every_family(tmp_path: Path) -> None:
    for family in FAMILIES:
        save_checkpoint(tiny_model(family_spec(family), DTYPE), tmp_path / family, "float32")
    store = open_store()
    context = multiprocessing.get_context("spawn")
    child = context.Process(target=follower, args=(store.port, tmp_path), daemon=True)
    child.start()
    ranks = join_ranks(store, rank=0, size=2, device="cpu")
    for family in FAMILIES:
        leading = LeadingTarget(share(tmp_path, family, ranks), ranks)
        whole = open_target(tiny_model(family_spec(family), DTYPE))
        two, one = outputs(leading), outputs(whole)
        leading.stop()
        assert [r.token_ids for r in two] == [r.token_ids for r in one], family
        assert [r.rounds for r in two] == [r.rounds for r in one], family
    child.join(20)
    assert child.exitcode == 0
    leave_ranks()
