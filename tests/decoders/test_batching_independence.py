"""A request's output and counts never depend on its neighbours, nor on when it came."""

from collections.abc import Sequence

import pytest
import torch

from decoders.loop import Decoder, decode
from decoders.options import DecodeOptions
from decoders.request import Request, Result
from models.target import CopyBatch, Target
from models.transformer import Transformer
from tests.conftest import tiny_model, tiny_spec
from tests.reference.running import outcome, prompt_of, run, tiny_proposers

PROPOSERS = tiny_proposers()


def mixed(limit: int = 9) -> list[Request]:
    """Twelve requests: every method, temperatures, rules, lengths; each its own seed."""
    methods = ["standard", "chain", "order", "threshold"]
    requests = []
    for index in range(12):
        options = DecodeOptions.lenient(
            method=methods[index % 4],
            budget=[1, 4, 9][index % 3],
            temperature=[0.0, 0.7, 1.0][index // 4],
            cap=[1.0, 0.9, 0.0][(index * 5) % 3],
            confidence=["top1", "chosen"][(index // 3) % 2],
            max_new_tokens=limit - index % 3,
            ignore_stop=index % 2 == 0,
        )
        requests.append(Request(f"r{index}", prompt_of(index % 10, index), options, index))
    return requests


def facts(result: Result) -> tuple[object, ...]:
    return (*outcome(result), result.rounds, result.nfe, result.tokens_per_forward)


def alone(model: Transformer, requests: Sequence[Request]) -> dict[str, tuple[object, ...]]:
    return {id: facts(result) for id, result in run(Target(model), requests, PROPOSERS).items()}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("batch_size", [2, 4, 12])
def test_output_and_counts_equal_those_of_a_request_alone(
    dtype: torch.dtype, batch_size: int
) -> None:
    model = tiny_model(dtype=dtype)
    together = run(Target(model), mixed(), PROPOSERS, batch_size)
    assert {id: facts(result) for id, result in together.items()} == alone(model, mixed())


def test_the_order_of_the_requests_does_not_matter() -> None:
    model = tiny_model()
    forth = run(Target(model), mixed(), PROPOSERS, batch_size=3)
    back = run(Target(model), mixed()[::-1], PROPOSERS, batch_size=3)
    assert {i: facts(r) for i, r in forth.items()} == {i: facts(r) for i, r in back.items()}


def test_one_request_many_times_in_a_batch_gives_one_answer_by_seed() -> None:
    options = DecodeOptions(temperature=1.0, max_new_tokens=6, ignore_stop=True)
    requests = [Request(str(i), prompt_of(3), options, noise_seed=i % 3) for i in range(9)]
    found = run(Target(tiny_model()), requests, batch_size=9)
    by_seed = {i: {found[str(j)].token_ids for j in range(i, 9, 3)} for i in range(3)}
    assert [len(answers) for answers in by_seed.values()] == [1, 1, 1]
    assert len(set.union(*by_seed.values())) == 3, "different seeds, different answers"


def test_wide_blocks_in_one_batch_equal_each_alone() -> None:
    model = tiny_model(tiny_spec(16, 40), seed=1)
    requests = [
        Request(
            str(i),
            prompt_of(5 * i, i, 40),
            DecodeOptions.lenient(
                method=method, budget=6, temperature=i / 3, max_new_tokens=20, ignore_stop=True
            ),
            i,
        )
        for i, method in enumerate(["standard", "chain", "order", "chain"])
    ]
    together = run(Target(model), requests, PROPOSERS, batch_size=4)
    assert {i: facts(r) for i, r in together.items()} == alone(model, requests)


def test_requests_may_join_and_leave_between_rounds() -> None:
    model = tiny_model()
    target = Target(model)
    decoder = Decoder(target, PROPOSERS)
    waiting, results, dropped = mixed(), {}, "r4"
    for round in range(200):
        if waiting and round % 3 == 0:
            decoder.add(waiting.pop(0))
        if dropped in decoder.active and len(decoder.active[dropped].rounds) == 2:
            decoder.remove(dropped)
        results |= {result.request.id: facts(result) for result in decoder.step()}
        assert set(target.caches) == {s.slot for s in decoder.active.values()}
    expected = alone(model, mixed())
    del expected[dropped]
    assert results == expected
    assert not decoder.active


class Counted(Target):
    """A real target that writes down how many requests share each forward."""

    def __init__(self, model: Transformer) -> None:
        super().__init__(model)
        self.sharing: list[int] = []

    def forward(self, batch: CopyBatch) -> torch.Tensor:
        self.sharing.append(len(set(batch.slots)))
        return super().forward(batch)


def test_a_leaver_makes_room_for_the_next() -> None:
    """The batch is never larger than asked for, nor smaller while somebody waits."""
    limits = [1, 9, 2, 9, 1, 3, 1, 1]
    requests = [
        Request(str(i), (5,), DecodeOptions(max_new_tokens=n, ignore_stop=True), i)
        for i, n in enumerate(limits)
    ]
    target = Counted(tiny_model())
    results = run(target, requests, batch_size=3)
    assert sum(target.sharing) == sum(result.nfe for result in results.values())
    full = target.sharing.count(3)
    assert target.sharing[:full] == [3] * full
    assert target.sharing == sorted(target.sharing, reverse=True)
    assert full > 5


def test_a_caller_that_stops_early_frees_every_prefix() -> None:
    target = Target(tiny_model())
    for _ in decode(Decoder(target, PROPOSERS), mixed(), batch_size=4):
        assert target.caches
        break
    assert not target.caches


def test_a_bad_request_in_the_queue_frees_every_prefix() -> None:
    target = Target(tiny_model())
    bad = Request("bad", (3,), DecodeOptions())
    with pytest.raises(ValueError, match="bad"):
        list(decode(Decoder(target, PROPOSERS), [*mixed()[:4], bad], batch_size=2))
    assert not target.caches


def test_results_come_as_they_finish() -> None:
    limits = {"long": 9, "short": 1}
    requests = [
        Request(name, (5,), DecodeOptions(max_new_tokens=n, ignore_stop=True))
        for name, n in limits.items()
    ]
    done = [r.request.id for r in decode(Decoder(Target(tiny_model()), {}), requests, 2)]
    assert done == ["short", "long"]
