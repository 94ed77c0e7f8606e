"""What a forward is called and how it is counted (contracts.md, "Forward kinds")."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
import torch

from decoders.options import DecodeOptions
from decoders.request import NFE_KINDS, Request, Result, Round
from models.target import CopyBatch, Target
from tests.conftest import tiny_model
from tests.reference.running import commits, prompt_of, run, run_one, tiny_proposers

BLOCK = 4
MODEL = tiny_model()
PROPOSERS = tiny_proposers()


class Watched(Target):
    """A real target that writes down the shape of every forward."""

    def __init__(self) -> None:
        super().__init__(MODEL)
        self.seen: list[str] = []

    def prefill(self, slot: int, tokens: Sequence[int]) -> None:
        self.seen.append(f"prefill {len(tokens)}")
        super().prefill(slot, tokens)

    def forward(self, batch: CopyBatch) -> torch.Tensor:
        stored = sum(batch.stores)
        self.seen.append(f"{len(batch.slots) - stored} copies, {stored} stored")
        return super().forward(batch)


def decoded(length: int, target: Target | None = None, **values: object) -> Result:
    options = DecodeOptions.lenient(**({"ignore_stop": True} | values))
    return run_one(target or Target(MODEL), prompt_of(length), options, length, PROPOSERS)


def kinds(result: Result) -> list[str]:
    return [round.kind for round in result.rounds]


def test_kinds_of_a_draft_free_run() -> None:
    """Five prompt tokens: one whole block, then a block with one known token."""
    result = decoded(5, max_new_tokens=7)
    assert kinds(result) == [
        "prefill",
        *["open", "step", "step"],
        *["open", "step", "step", "step"],
    ]
    assert (result.nfe, result.forwards, result.commits) == (7, 8, 7)
    assert result.tokens_per_forward == 1.0
    assert result.accepted_per_round == 0.0


def test_a_prompt_shorter_than_a_block_is_not_prefilled() -> None:
    assert kinds(decoded(3, max_new_tokens=1)) == ["open"]
    assert kinds(decoded(4, max_new_tokens=1))[:2] == ["prefill", "open"]


def test_forwards_made_are_forwards_counted_and_the_open_one_stores_the_block_before() -> None:
    target = Watched()
    result = decoded(5, target, max_new_tokens=11)
    opened, stepped, fused = "1 copies, 0 stored", "1 copies, 0 stored", "1 copies, 1 stored"
    assert target.seen[:4] == ["prefill 4", opened, stepped, stepped]
    assert target.seen[4] == fused
    assert target.seen.count(fused) == 2, "three blocks: the last one is never stored"
    assert len(target.seen) == result.forwards
    assert "store" not in kinds(result)


def test_verify_forwards_hold_the_root_and_its_drafts() -> None:
    target = Watched()
    result = decoded(5, target, method="chain", budget=2, max_new_tokens=11)
    for round, seen in zip(result.rounds, target.seen, strict=True):
        if round.kind == "verify":
            assert 1 <= round.drafts <= 2
            assert seen == f"{1 + round.drafts} copies, 0 stored"
        elif round.kind != "prefill":
            assert round.drafts == round.accepted == 0
    assert "verify" in kinds(result)


def test_a_root_with_one_masked_position_is_a_step_not_a_verify() -> None:
    """Its only successor is full, and verifying that saves no forward."""
    result = decoded(7, method="chain", budget=8, max_new_tokens=1)
    assert kinds(result) == ["prefill", "open"]
    result = decoded(6, method="order", budget=8, max_new_tokens=2)
    assert kinds(result) == ["prefill", "open", "step"]


@pytest.mark.parametrize("method", ["standard", "threshold", "chain", "order"])
def test_totals_follow_from_the_rounds(method: str) -> None:
    for length in (0, 3, 9):
        result = decoded(length, method=method, budget=6, tau=0.1, max_new_tokens=9)
        rounds = result.rounds
        verified = [round for round in rounds if round.kind == "verify"]
        assert result.nfe == sum(round.kind in NFE_KINDS for round in rounds)
        assert result.forwards == result.nfe + kinds(result).count("prefill")
        assert result.commits == sum(len(step) for step in commits(result))
        assert result.tokens_per_forward == result.commits / result.nfe
        for round in rounds:
            assert len(round.steps) == (0 if round.kind == "prefill" else round.accepted + 1)
        if verified:
            mean = sum(round.accepted for round in verified) / len(verified)
            assert result.accepted_per_round == mean


def test_commits_beyond_the_limit_count() -> None:
    result = decoded(0, max_new_tokens=2)
    assert len(result.token_ids) == 2
    assert result.commits == result.nfe >= 2
    by_limit = {n: decoded(0, max_new_tokens=n).commits for n in range(1, 5)}
    assert max(by_limit.values()) == 4
    assert list(by_limit.values()) == sorted(by_limit.values())
    assert result.tokens_per_forward == 1.0


def test_threshold_commits_several_positions_a_forward() -> None:
    result = decoded(0, method="threshold", tau=0.0, max_new_tokens=8)
    assert kinds(result) == ["open", "open"]
    assert [len(step) for step in commits(result)] == [4, 4]
    assert result.tokens_per_forward == 4.0


def test_threshold_that_nothing_passes_goes_on_one_by_one() -> None:
    result = decoded(0, method="threshold", tau=0.999999, max_new_tokens=8)
    assert [len(step) for step in commits(result)] == [1] * 8
    assert result.token_ids == decoded(0, max_new_tokens=8).token_ids


@pytest.mark.parametrize("confidence", ["top1", "chosen"])
def test_top_k_of_one_does_not_make_every_position_sure(confidence: str) -> None:
    """Confidence is read before the filters: a draw among one token is no surer than argmax."""
    rule = {"method": "threshold", "tau": 0.16, "confidence": confidence, "max_new_tokens": 12}
    greedy = decoded(3, **rule)
    only = decoded(3, temperature=1.0, top_k=1, **rule)
    assert commits(only) == commits(greedy)
    assert 4 < len(commits(greedy)) < 12, "neither whole blocks nor one by one"


@pytest.mark.parametrize("length", range(1, 8))
def test_a_step_of_many_commits_never_overwrites_the_prompts_tail(length: int) -> None:
    """However low the threshold: only what is masked can be committed."""
    result = decoded(length, method="threshold", tau=0.0, max_new_tokens=9)
    end = (length // BLOCK + 1) * BLOCK
    assert [position for position, _ in commits(result)[0]] == list(range(length, end))
    assert min(position for step in commits(result) for position, _ in step) == length


@pytest.mark.parametrize("length", range(10))
def test_a_limit_of_zero_costs_nothing(length: int) -> None:
    result = decoded(length, max_new_tokens=0)
    assert result.rounds == ()
    assert (result.token_ids, result.stop_reason) == ((), "length")
    assert (result.nfe, result.forwards, result.tokens_per_forward) == (0, 0, 0.0)


def test_a_limit_of_zero_in_a_batch_does_not_hold_up_its_neighbours() -> None:
    requests = [
        Request(str(i), prompt_of(i), DecodeOptions(max_new_tokens=limit, ignore_stop=True))
        for i, limit in enumerate([0, 3, 0, 0, 5, 0])
    ]
    results = run(Target(MODEL), requests, batch_size=2)
    assert [len(results[str(i)].token_ids) for i in range(6)] == [0, 3, 0, 0, 5, 0]


def test_every_position_is_committed_once_and_in_its_block() -> None:
    for method in ("standard", "threshold", "chain", "order"):
        result = decoded(6, method=method, budget=8, tau=0.1, max_new_tokens=10)
        positions = [position for step in commits(result) for position, _ in step]
        assert sorted(positions) == list(range(6, 16))
        blocks = [position // BLOCK for position in positions]
        assert blocks == sorted(blocks)
        assert all(a <= b for a, b in pairwise(blocks))


def test_a_row_spells_the_rounds_on_request() -> None:
    result = decoded(5, method="chain", budget=3, max_new_tokens=5)
    row = result.row(text=None, trace=True)
    assert row["nfe"] == result.nfe
    assert row["rounds"][0] == {"kind": "prefill", "drafts": 0, "accepted": 0, "steps": []}
    spelled = [
        Round(
            r["kind"], r["drafts"], r["accepted"], tuple(tuple(map(tuple, s)) for s in r["steps"])
        )
        for r in row["rounds"]
    ]
    assert tuple(spelled) == result.rounds
    assert "rounds" not in result.row(text=None)
