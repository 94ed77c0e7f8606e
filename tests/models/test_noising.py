"""Noised training blocks: what may be masked, how much, and what it weighs."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.noising import NoisedBatch, Sample, noised_batch

L, MASK, PAD = 4, 3, 0
SAMPLES = [
    Sample(prompt=(5, 6, 7, 8, 9, 10), answer=(11, 12, 13, 14, 15, 2)),
    Sample(prompt=(), answer=(9, 8, 2)),
    Sample(prompt=(4, 4, 4, 4), answer=(5,) * 11 + (2,)),
    Sample(prompt=(7,) * 7, answer=(2,)),
]


def batch_of(
    samples: list[Sample], num_noisy: int = 8, seed: int = 0, ordered_share: float = 0.0
) -> NoisedBatch:
    generator = torch.Generator().manual_seed(seed)
    return noised_batch(samples, 20, num_noisy, L, MASK, PAD, generator, ordered_share)


def learnt(sample: Sample, block: int) -> list[bool]:
    """Which positions of a block belong to the answer or to the padding of the last block."""
    end = sample.num_blocks(L) * L
    return [len(sample.prompt) <= block * L + i < end for i in range(L)]


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.integers(0, 10_000), st.integers(1, 9), st.sampled_from([0.0, 0.5, 1.0]))
def test_the_prompt_is_never_noised_and_every_view_learns(
    seed: int, num_noisy: int, ordered_share: float
) -> None:
    batch = batch_of(SAMPLES, num_noisy, seed, ordered_share)
    for row, sample in enumerate(SAMPLES):
        for view in range(num_noisy):
            block = int(batch.blocks_BN[row, view])
            masked = (batch.noisy_BNL[row, view] == MASK).tolist()
            allowed = learnt(sample, block)
            assert any(masked)
            assert all(may for was, may in zip(masked, allowed, strict=True) if was)


@settings(derandomize=True, deadline=None, max_examples=30)
@given(st.integers(0, 10_000), st.integers(1, 9))
def test_weights_stand_where_masks_do_and_sum_to_one(seed: int, num_noisy: int) -> None:
    batch = batch_of(SAMPLES, num_noisy, seed)
    masked = batch.noisy_BNL == MASK
    assert torch.equal(batch.weights_BNL > 0, masked)
    assert float(batch.weights_BNL.sum()) == pytest.approx(1.0, abs=1e-6)
    per_view = batch.weights_BNL.sum(-1)
    torch.testing.assert_close(per_view, torch.full_like(per_view, 1 / per_view.numel()))
    counts = masked.sum(-1, keepdim=True)
    torch.testing.assert_close(
        batch.weights_BNL[masked], (per_view[..., None] / counts).expand_as(masked)[masked]
    )


def test_targets_are_the_clean_blocks_and_the_rest_of_a_view_is_clean() -> None:
    batch = batch_of(SAMPLES)
    for row, sample in enumerate(SAMPLES):
        ids = list(sample.prompt + sample.answer)
        assert batch.clean_BT[row].tolist() == ids + [PAD] * (20 - len(ids))
        for view, block in enumerate(batch.blocks_BN[row].tolist()):
            clean = batch.clean_BT[row, block * L : (block + 1) * L]
            assert torch.equal(batch.targets_BNL[row, view], clean)
            noisy = batch.noisy_BNL[row, view]
            assert torch.equal(noisy[noisy != MASK], clean[noisy != MASK])


def test_the_blocks_that_hold_answer_tokens_are_taken_in_turn() -> None:
    batch = batch_of(SAMPLES, num_noisy=12)
    for row, sample in enumerate(SAMPLES):
        first, last = len(sample.prompt) // L, sample.num_blocks(L)
        taken = batch.blocks_BN[row].tolist()
        assert set(taken) == set(range(first, last))
        counts = [taken.count(block) for block in range(first, last)]
        assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("ordered_share", [0.0, 1.0])
def test_the_number_of_masks_is_uniform(ordered_share: float) -> None:
    whole = Sample(prompt=(5,) * L, answer=(6,) * L)
    batch = batch_of([whole] * 100, num_noisy=80, ordered_share=ordered_share)
    counts = (batch.noisy_BNL == MASK).sum(-1).flatten().bincount(minlength=L + 1)
    assert counts[0] == 0
    # 8,000 views, 2,000 expected of each count: five standard errors.
    assert ((counts[1:] - 2000).abs() < 5 * 39).all()


def test_without_an_order_every_position_is_masked_equally_often() -> None:
    whole = Sample(prompt=(5,) * L, answer=(6,) * L)
    batch = batch_of([whole] * 100, num_noisy=80)
    share = (batch.noisy_BNL == MASK).float().mean(dim=(0, 1))
    assert ((share - 5 / 8).abs() < 0.03).all()


def test_leaning_views_mask_the_blocks_end_first() -> None:
    whole = Sample(prompt=(5,) * L, answer=(6,) * L)
    batch = batch_of([whole] * 100, num_noisy=80, ordered_share=1.0)
    share = (batch.noisy_BNL == MASK).float().mean(dim=(0, 1))
    assert (share.diff() > 0.1).all()
    assert share[-1] > 0.95


def test_the_generator_decides_everything() -> None:
    one, same, other = (
        batch_of(SAMPLES, seed=1),
        batch_of(SAMPLES, seed=1),
        batch_of(SAMPLES, seed=2),
    )
    for name, tensor in vars(one).items():
        assert torch.equal(tensor, getattr(same, name))
    assert not torch.equal(one.noisy_BNL, other.noisy_BNL)


def test_padding_is_learnt_up_to_the_samples_block_end_only() -> None:
    short = Sample(prompt=(5, 6), answer=(7, 2, 9, 2))
    batch = batch_of([short], num_noisy=200)
    assert set(batch.blocks_BN.flatten().tolist()) == {0, 1}
    last = batch.noisy_BNL[0][batch.blocks_BN[0] == 1]
    assert (last == MASK).any(dim=0).all(), "the padding behind the answer too"
    first = batch.noisy_BNL[0][batch.blocks_BN[0] == 0]
    assert not (first[:, :2] == MASK).any()
