"""Several ranks, each in a process, decode every family as one rank does."""

import multiprocessing
from pathlib import Path

import pytest
import torch

from decoders.forwarder import Forwarder
from decoders.loop import Decoder, decode
from decoders.request import Request, Result
from models.checkpoint import save_checkpoint
from models.config import TargetConfig
from models.leading import LeadingTarget, follow
from models.loading import load_model
from models.opening import AnyTarget, open_target
from models.ranks import Ranks, join_ranks, leave_ranks, open_store, reach_store
from models.spec import Experts, TargetSpec
from tests.conftest import tiny_model
from tests.reference.families import FAMILIES, family_spec
from tests.reference.grid import draft
from tests.reference.running import prompt_of, tiny_proposers

DTYPE = torch.float32


def cases(size: int) -> dict[str, TargetSpec]:
    """What is decoded on so many ranks, by name: on two every family, on four a dense one, the
    experts of both routers, and a tied one, with as many heads and experts as that takes."""
    found = {family: family_spec(family) for family in FAMILIES}
    found["tied"] = changed("Fast_dLLM_Qwen", tied_embeddings=True)
    if size == 2:
        return found
    heads = {"num_heads": 8, "num_kv_heads": 4}
    eight = Experts(count=8, per_token=3, intermediate_size=12)
    return {
        "sdar": changed("sdar", **heads),
        "sdar_moe": changed("sdar_moe", experts=eight, **heads),
        "llada2_moe": changed("llada2_moe", **heads),
        "tied": changed("Fast_dLLM_Qwen", tied_embeddings=True, **heads),
    }


def changed(family: str, **values: object) -> TargetSpec:
    return TargetSpec.model_validate(family_spec(family).model_dump() | values)


def share(folder: Path, ranks: Ranks) -> AnyTarget:
    """One rank's slices, read from the family's own format."""
    config = TargetConfig(path=str(folder), dtype="float32", tp=ranks.size)
    return open_target(load_model(config, ranks), ranks)


def follower(port: int, rank: int, size: int, folder: Path) -> None:
    torch.set_num_threads(1)
    ranks = join_ranks(reach_store(port), rank, size, device="cpu")
    for name in cases(size):
        follow(share(folder / name, ranks), ranks)
    leave_ranks()


def outputs(target: Forwarder) -> list[Result]:
    """Standard, threshold and drafted texts side by side, some behind a stored block, and behind
    kept keys where nothing else is cached."""
    refresh = 2 if target.spec.topology == "bidirectional" else 0
    requests = [
        Request(
            str(length),
            prompt_of(length),
            draft(method, 4, temperature, 1.0, "top1", cache_refresh=kept),
            length,
        )
        for length, method, temperature, kept in (
            (0, "standard", 0.0, 0),
            (3, "order", 1.0, 0),
            (5, "threshold", 0.0, refresh),
            (9, "chain", 0.0, refresh),
        )
    ]
    results = decode(Decoder(target, tiny_proposers()), requests, batch_size=2)
    return sorted(results, key=lambda result: result.request.id)


@pytest.mark.parametrize("size", [2, 4])
def test_several_ranks_decode_as_one_does(size: int, tmp_path: Path) -> None:
    for name, spec in cases(size).items():
        save_checkpoint(tiny_model(spec, DTYPE), tmp_path / name, "float32")
    store = open_store()
    context = multiprocessing.get_context("spawn")
    children = [
        context.Process(target=follower, args=(store.port, rank, size, tmp_path), daemon=True)
        for rank in range(1, size)
    ]
    for child in children:
        child.start()
    ranks = join_ranks(store, rank=0, size=size, device="cpu")
    for name, spec in cases(size).items():
        leading = LeadingTarget(share(tmp_path / name, ranks), ranks)
        several, one = outputs(leading), outputs(open_target(tiny_model(spec, DTYPE)))
        leading.stop()
        assert [r.token_ids for r in several] == [r.token_ids for r in one], name
        assert [r.rounds for r in several] == [r.rounds for r in one], name
    for child in children:
        child.join(20)
        assert child.exitcode == 0
    leave_ranks()
