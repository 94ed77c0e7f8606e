"""Two ranks in two processes: rank 0 is the test itself, rank 1 a child that follows."""

import multiprocessing
from collections.abc import Iterator
from datetime import timedelta

import pytest
import torch

from decoders.cache_memory import CacheMemory
from decoders.forwarder import Forwarder
from decoders.loop import Decoder, decode
from decoders.options import DecodeOptions
from decoders.proposers.chain import ChainProposer
from decoders.request import Request, Result, Round
from models.cache import GROWTH
from models.leading import LeadingTarget, follow, pack, unpack
from models.opening import AnyTarget, open_target
from models.ranks import Ranks, join_ranks, leave_ranks, open_store, reach_store
from models.target import NO_PARENT, CopyBatch, Target
from models.tensor_parallel import check_tensor_parallel, shard_model
from tests.conftest import tiny_model, tiny_spec
from tests.reference.grid import STOP_IDS, mixed_requests
from tests.reference.running import outcome, tiny_proposers

PATIENCE = timedelta(seconds=60)
DTYPES = [torch.float64, torch.float32]
CLOSE = {torch.float64: 1e-12, torch.float32: 1e-5}
PROMPTS: list[tuple[int, ...]] = [(), (5,), (4, 5, 6, 7), (4, 5, 6, 7, 8, 9), tuple(range(4, 15))]


def share(dtype: torch.dtype, ranks: Ranks) -> AnyTarget:
    model = tiny_model(dtype=dtype)
    shard_model(model, ranks)
    return open_target(model, ranks)


def follower(port: int, dtype: torch.dtype) -> None:
    torch.set_num_threads(1)
    ranks = join_ranks(reach_store(port), rank=1, size=2, device="cpu", timeout=PATIENCE)
    target = share(dtype, ranks)
    follow(target, ranks)
    assert not target.open_slots, "what rank 0 gave back is given back here too"
    leave_ranks()


@pytest.fixture(scope="module", params=DTYPES, ids=str)
def leader(request: pytest.FixtureRequest) -> Iterator[LeadingTarget]:
    store = open_store()
    context = multiprocessing.get_context("spawn")
    child = context.Process(target=follower, args=(store.port, request.param), daemon=True)
    child.start()
    ranks = join_ranks(store, rank=0, size=2, device="cpu", timeout=PATIENCE)
    leading = LeadingTarget(share(request.param, ranks), ranks)
    yield leading
    leading.stop()
    child.join(20)
    assert child.exitcode == 0
    leave_ranks()


@pytest.fixture
def alone(leader: LeadingTarget) -> Target:
    return Target(tiny_model(dtype=leader.local.model.dtype))


def outputs(target: Forwarder, options: DecodeOptions, batch_size: int = 1) -> list[Result]:
    requests = [
        Request(str(index), prompt, options, noise_seed=index)
        for index, prompt in enumerate(PROMPTS)
    ]
    results = decode(Decoder(target, {"chain": ChainProposer()}), requests, batch_size)
    return sorted(results, key=lambda result: result.request.id)


def tokens(results: list[Result]) -> list[tuple[int, ...]]:
    return [result.token_ids for result in results]


def options(method: str, **values: float) -> DecodeOptions:
    return DecodeOptions.lenient(
        method=method, max_new_tokens=13, budget=4, ignore_stop=True, **values
    )


def test_a_rank_holds_its_share_and_nothing_more(leader: LeadingTarget, alone: Target) -> None:
    sizes = {name: p.numel() for name, p in leader.local.model.named_parameters()}
    for name, whole in alone.model.named_parameters():
        share = 1 if "norm" in name else 2
        assert sizes[name] * share == whole.numel(), name
    storage = sum(p.untyped_storage().nbytes() for p in leader.local.model.parameters())
    assert storage == sum(p.numel() * p.element_size() for p in leader.local.model.parameters())


def test_logits_equal_one_rank(leader: LeadingTarget, alone: Target) -> None:
    full, masks = [4, 5, 6, 7], [3, 3, 3, 3]
    batch = CopyBatch(
        [0, 0, 1],
        torch.tensor([full, masks, [9, 3, 3, 3]]),
        [NO_PARENT, 0, NO_PARENT],
        [True, False, False],
        torch.arange(4, 12),
    )
    found, hidden = [], []
    for target in (leader, alone):
        for slot in (0, 1):
            target.open_slot(slot)
        target.prefill(1, (8, 9, 10, 11))
        found.append(torch.stack([target.forward(batch), target.forward(batch)]))
        hidden.append(target.forward_with_hidden(batch)[1])
        for slot in (0, 1):
            target.close_slot(slot)
    torch.testing.assert_close(*found, rtol=0, atol=CLOSE[leader.local.model.dtype])
    # Hidden states are those of all rows, whole on every rank.
    assert hidden[0].shape == (8, alone.spec.hidden_size)
    torch.testing.assert_close(*hidden, rtol=0, atol=CLOSE[leader.local.model.dtype])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("method", ["threshold", "chain"])
def test_decoded_tokens_and_counts_equal_one_rank(
    leader: LeadingTarget, alone: Target, method: str, temperature: float
) -> None:
    decoding = options(method, temperature=temperature)
    two, one = outputs(leader, decoding), outputs(alone, decoding)
    assert tokens(two) == tokens(one)
    assert [result.rounds for result in two] == [result.rounds for result in one]


@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_chain_equals_standard_on_two_ranks(
    leader: LeadingTarget, temperature: float, batch_size: int
) -> None:
    chain = outputs(leader, options("chain", temperature=temperature), batch_size)
    standard = outputs(leader, options("standard", temperature=temperature))
    assert tokens(chain) == tokens(standard)
    assert sum(r.nfe for r in chain) < sum(r.nfe for r in standard)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_copies_that_become_the_prefix_do_so_on_both_ranks(
    leader: LeadingTarget, alone: Target, temperature: float
) -> None:
    decoding = DecodeOptions(
        method="chain",
        budget=7,
        cap=0.9,
        temperature=temperature,
        max_new_tokens=14,
        ignore_stop=True,
        cross_block=True,
        draft_refresh=3,
    )
    two, one = outputs(leader, decoding, batch_size=2), outputs(alone, decoding)
    assert [result.rounds for result in two] == [result.rounds for result in one]
    assert tokens(two) == tokens(outputs(alone, decoding.draft_free()))
    crossing = [r for result in one for r in result.rounds if len({p // 4 for p in ends(r)}) > 1]
    assert crossing


def test_twenty_runs_that_are_stopped_early_leave_no_prefix_on_any_rank(
    leader: LeadingTarget,
) -> None:
    """The other rank's own look is at the end of ``follower``."""
    decoding = options("chain")
    requests = [Request(str(index), PROMPTS[-1], decoding) for index in range(4)]
    for _ in range(20):
        for _ in decode(Decoder(leader, {"chain": ChainProposer()}), requests, 2):
            assert leader.local.open_slots
            break
        assert not leader.local.open_slots


def ends(round: Round) -> list[int]:
    """The positions that a round filled."""
    return [position for step in round.steps for position, _ in step]


@pytest.mark.parametrize(("batch_size", "every"), [(1, 4), (4, 1)])
def test_every_point_of_the_exactness_grid_holds_on_two_ranks(
    leader: LeadingTarget, batch_size: int, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outcomes expected are those of one rank's naive twin; alone, a fourth of the points."""
    spec = leader.spec.model_copy(update={"stop_token_ids": STOP_IDS})
    monkeypatch.setattr(leader, "spec", spec)
    pairs = list(mixed_requests(leader.local.model.dtype, ("chain", "order")))[::every]
    decoder = Decoder(leader, tiny_proposers())
    results = decode(decoder, [request for request, _ in pairs], batch_size)
    found = {result.request.id: outcome(result) for result in results}
    wrong = [request for request, expected in pairs if found[request.id] != expected]
    assert not wrong


def test_a_message_carries_the_whole_batch() -> None:
    batch = CopyBatch(
        [3, 3, 7],
        torch.tensor([[4, 5, 6, 7], [3, 3, 3, 3], [9, 3, 3, 3]]),
        [NO_PARENT, 0, NO_PARENT],
        [True, False, False],
        torch.tensor([4, 5, 9]),
    )
    read = unpack(pack(batch), copies=3, spec=tiny_spec())
    assert read.slots == batch.slots
    assert read.parents == batch.parents
    assert read.stores == batch.stores
    assert torch.equal(read.tokens_CL, batch.tokens_CL)
    assert torch.equal(read.rows, batch.rows)


@pytest.mark.parametrize("size", [0, 3, 4])
def test_a_size_that_does_not_divide_is_refused_with_the_valid_ones(size: int) -> None:
    with pytest.raises(ValueError, match=rf"target.tp {size} .* valid: 1, 2$"):
        check_tensor_parallel(tiny_spec(), size)


def test_kept_blocks_are_kept_by_every_rank(leader: LeadingTarget, alone: Target) -> None:
    """Warm, parked or short of room: two ranks decode what one does."""
    requests = [
        Request(str(index), tuple(range(4, 20 + index)), options("chain"), index)
        for index in range(4)
    ]
    expected = {
        r.request.id: r.token_ids
        for r in decode(Decoder(alone, {"chain": ChainProposer()}), requests, 1)
    }
    memory = CacheMemory(leader, 4 * GROWTH + 16)
    decoder = Decoder(leader, {"chain": ChainProposer()}, memory=memory)
    for _ in range(2):
        for request in requests:
            decoder.add(request)
        decoder.step()
        parked = decoder.park("2")
        found = decoder.step()
        decoder.join(parked)
        while decoder.active:
            found += decoder.step()
        assert {r.request.id: r.token_ids for r in found} == expected
    assert memory.num_restored > 100
    assert isinstance(leader.local, Target)
    assert len(leader.local.kept) * 4 == memory.kept > 0
